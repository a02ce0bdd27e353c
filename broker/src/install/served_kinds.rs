//! Kinds of the manifest that not every supported API server serves.

use anyhow::Context as _;
use kube::api::DynamicObject;

use super::{
    Administrator,
    admin::title,
    direct_namespaces::{API_VERSION, POLICIES},
};

/// Prefix of the kinds of mutating policies and their bindings.
const MUTATION_PREFIX: &str = "MutatingAdmissionPolicy";

impl Administrator {
    /// The objects that the API server can store, and a line of the report for each that it cannot.
    ///
    /// # Errors
    /// The API server refuses to list what it serves.
    pub(super) async fn served_objects(
        &self,
        objects: Vec<DynamicObject>,
    ) -> anyhow::Result<(Vec<DynamicObject>, Vec<String>)> {
        if !objects.iter().any(is_mutation) || self.serves_mutation().await? {
            return Ok((objects, Vec::new()));
        }
        let (left_out, served): (Vec<_>, Vec<_>) = objects.into_iter().partition(is_mutation);
        let line = |object| {
            format!(
                "{} left out, because the API server does not serve this kind as v1 (Kubernetes \
                 1.36 does): namespaces that owners create need the labels \
                 tenant-broker.io/tenant and pod-security.kubernetes.io/enforce",
                title(object)
            )
        };
        Ok((served, left_out.iter().map(line).collect()))
    }

    async fn serves_mutation(&self) -> anyhow::Result<bool> {
        let served = self
            .client()
            .list_api_group_resources(API_VERSION)
            .await
            .with_context(|| format!("cannot list the resources of {API_VERSION}"))?;
        Ok(served.resources.iter().any(|resource| resource.name == POLICIES))
    }
}

fn is_mutation(object: &DynamicObject) -> bool {
    object.types.as_ref().is_some_and(|types| types.kind.starts_with(MUTATION_PREFIX))
}
