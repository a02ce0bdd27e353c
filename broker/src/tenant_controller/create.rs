//! A namespace that a person requested. The request makes all of its objects, so that the person can
//! use it at once, in the order of the controller: limits before bindings.
//!
//! The row is committed before, so the controller finishes what fails or is interrupted here. It
//! leaves the objects of a new namespace to the request for a moment, but may work on the tenant at
//! the same time, because the request holds no lease: objects that exist already are compared, and
//! amounts for the whole tenant are left as they are.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::Namespace;

use super::{
    TenantController,
    apply::{ensure, is_to_be_made},
    error::ReconcileError,
    snapshot::name_of,
    withdraw::{MAX_IN_FLIGHT, title},
};
use crate::{
    base::error_chain,
    cluster::{ClusterError, HomeState, Object},
    tenant::{
        Condition, Inputs, NamespaceStatus, Tenant, TenantName, TenantRow, TenantStatus,
        desired_state, home_name,
    },
};

/// A namespace that a person requested was not created, or not with all of its objects.
#[derive(Debug, thiserror::Error)]
pub enum CreateNamespaceError {
    /// A namespace of this name exists. It was not changed.
    #[error("a namespace {0} exists already; choose another name")]
    Exists(String),
    /// The namespace was not created, so the caller may release the claim.
    #[error("the namespace {namespace} was not created")]
    NotCreated {
        /// Name of the namespace.
        namespace: String,
        /// The cause.
        source: Box<ReconcileError>,
    },
    /// The namespace may exist, and lacks objects. The row is still `Creating`.
    #[error(
        "the namespace {namespace} is not complete yet; wait, because the broker goes on creating \
         it"
    )]
    Unfinished {
        /// Name of the namespace.
        namespace: String,
        /// The cause.
        source: Box<ReconcileError>,
    },
    /// The tenant was suspended or closed meanwhile, so nobody has rights in the namespace.
    #[error("the tenant {0} is not active, so nobody has rights in its namespaces")]
    NotActive(TenantName),
}

/// The objects of a namespace in the order of their creation.
#[derive(Debug, Default)]
struct NewNamespace {
    namespace: Namespace,
    limits: Vec<Object>,
    bindings: Vec<Object>,
    /// Names of the quotas whose amounts are for the whole tenant.
    shared: BTreeSet<String>,
}

impl TenantController {
    /// Creates a namespace whose row was claimed in the status `Creating`: the namespace, its quotas
    /// and limits, and then its RoleBindings. The row is `Active` afterwards. Returns the namespace
    /// as the API server made it.
    ///
    /// The caller checked that the tenant may have this name and that people may set these labels
    /// and annotations. Those that the Tenant or the broker sets win. Amounts for the whole tenant
    /// are 0 until the controller divides them, which it does soon after.
    ///
    /// # Errors
    /// See [`CreateNamespaceError`].
    pub async fn create_namespace(
        &self,
        row: &TenantRow,
        tenant: &Tenant,
        name: &str,
        labels: &BTreeMap<String, String>,
        annotations: &BTreeMap<String, String>,
    ) -> Result<Namespace, CreateNamespaceError> {
        let creation = self.creations.begin(&self.queue, &row.name, name);
        let created = Box::pin(self.create(row, tenant, name, (labels, annotations))).await;
        if created.is_ok() {
            tracing::info!(tenant = %row.name, namespace = name, "namespace created");
        }
        drop(creation);
        created
    }

    async fn create(
        &self,
        row: &TenantRow,
        tenant: &Tenant,
        name: &str,
        metadata: (&BTreeMap<String, String>, &BTreeMap<String, String>),
    ) -> Result<Namespace, CreateNamespaceError> {
        let not_created = |source: ReconcileError| {
            let (namespace, source) = (name.to_owned(), Box::new(source));
            CreateNamespaceError::NotCreated { namespace, source }
        };
        let unfinished = |source: ReconcileError| {
            let (namespace, source) = (name.to_owned(), Box::new(source));
            CreateNamespaceError::Unfinished { namespace, source }
        };
        let mut new = self.plan(row, tenant, name).await.map_err(not_created)?;
        add_metadata(&mut new.namespace, metadata);
        let wanted = Object::Namespace(Box::new(std::mem::take(&mut new.namespace)));
        let created = match self.cluster.create_object(&wanted).await {
            Ok(created) => created,
            Err(ClusterError::Conflict(_)) => {
                return Err(CreateNamespaceError::Exists(name.to_owned()));
            }
            // The API server may have created it and not answered.
            Err(error @ ClusterError::Unavailable(_)) => return Err(unfinished(error.into())),
            Err(error) => return Err(not_created(error.into())),
        };
        let filled = self.fill(name, &new).await;
        // Whoever suspended or closed the tenant meanwhile may not have seen the bindings.
        let is_active = self.is_active(row).await;
        if !matches!(is_active, Ok(true)) {
            self.delete_bindings(row, &new.bindings).await;
        }
        if !is_active.map_err(|error| unfinished(error.into()))? {
            return Err(CreateNamespaceError::NotActive(row.name.clone()));
        }
        filled.map_err(|error| unfinished(error.into()))?;
        let (creating, active) = ([NamespaceStatus::Creating], NamespaceStatus::Active);
        let recorded = self.tenants.set_namespace_status(row.id, name, &creating, active).await;
        if !recorded.map_err(|error| unfinished(error.into()))? {
            self.require_counted(row, name, &new).await?;
        }
        match created {
            Object::Namespace(created) => Ok(*created),
            other => {
                let what = format!("the API server created a {} instead", other.kind());
                Err(unfinished(ClusterError::Conflict(what).into()))
            }
        }
    }

    /// Checks that the row of a namespace is still the tenant's, after somebody else changed its
    /// status. Without it the namespace would not count, so nobody may have rights in it.
    async fn require_counted(
        &self,
        row: &TenantRow,
        name: &str,
        new: &NewNamespace,
    ) -> Result<(), CreateNamespaceError> {
        let rows = self.tenants.namespaces(row.id).await;
        if let Ok(rows) = &rows
            && rows.iter().any(|it| it.name == name && it.status == NamespaceStatus::Active)
        {
            return Ok(());
        }
        self.delete_bindings(row, &new.bindings).await;
        let lost = ClusterError::Conflict("its row was changed meanwhile".to_owned());
        let source = Box::new(rows.err().map_or_else(|| lost.into(), ReconcileError::from));
        Err(CreateNamespaceError::Unfinished { namespace: name.to_owned(), source })
    }

    /// The objects that a new namespace has.
    async fn plan(
        &self,
        row: &TenantRow,
        tenant: &Tenant,
        name: &str,
    ) -> Result<NewNamespace, ReconcileError> {
        let home = home_name(&row.name);
        let home = async {
            let state = self.cluster.home_state(&home, row.name.as_str()).await;
            state.map_err(ReconcileError::from)
        };
        let (members, home) = tokio::try_join!(self.members(row), home)?;
        if home == HomeState::Foreign {
            // Nobody has rights in such a tenant.
            let condition = Condition::home_taken(&row.name);
            return Err(ClusterError::Conflict(condition.message).into());
        }
        let mut desired = desired_state(&Inputs {
            tenant,
            suspended: false,
            members: &members,
            namespaces: &[name],
            settings: &self.settings,
            tiers: &self.tiers,
        });
        let shared = desired.shared_quotas.into_keys().collect();
        let mut new = NewNamespace { shared, ..NewNamespace::default() };
        for object in desired.namespaces.remove(name).unwrap_or_default() {
            match object {
                Object::Namespace(namespace) => new.namespace = *namespace,
                Object::RoleBinding(_) => new.bindings.push(object),
                _ => new.limits.push(object),
            }
        }
        Ok(new)
    }

    /// Makes quotas and limits, and then bindings. If one fails, the others of its kind are made
    /// nevertheless.
    async fn fill(&self, namespace: &str, new: &NewNamespace) -> Result<(), ClusterError> {
        let limits: Vec<_> =
            new.limits.iter().map(|wanted| self.make_limit(namespace, wanted, new)).collect();
        all(limits).await?;
        let bindings: Vec<_> =
            new.bindings.iter().map(|wanted| ensure(&self.cluster, None, wanted)).collect();
        all(bindings).await
    }

    /// Makes a quota or limits, and waits until a quota limits the namespace.
    async fn make_limit(
        &self,
        namespace: &str,
        wanted: &Object,
        new: &NewNamespace,
    ) -> Result<(), ClusterError> {
        match self.cluster.create_object(wanted).await {
            Ok(_) => {}
            // The controller made it meanwhile, and may have given the namespace its share.
            Err(ClusterError::Conflict(_)) => {
                let live = self.cluster.get_object(wanted).await?;
                let is_shared = new.shared.contains(name_of(wanted));
                if !is_shared || is_to_be_made(live.as_ref(), wanted) {
                    ensure(&self.cluster, live.as_ref(), wanted).await?;
                }
            }
            Err(error) => return Err(error),
        }
        if let Object::ResourceQuota(_) = wanted {
            self.cluster.wait_for_quota(namespace, name_of(wanted)).await?;
        }
        Ok(())
    }

    async fn is_active(&self, row: &TenantRow) -> sqlx::Result<bool> {
        let now = self.tenants.by_id(row.id).await?;
        Ok(now.is_some_and(|row| row.status == TenantStatus::Active))
    }

    /// Deletes bindings, also one that a request without an answer made. The controller deletes what
    /// is left.
    async fn delete_bindings(&self, row: &TenantRow, bindings: &[Object]) {
        let requests: Vec<_> = bindings.iter().map(|it| self.delete_binding(it)).collect();
        let results: Vec<Result<(), String>> =
            stream::iter(requests).buffer_unordered(MAX_IN_FLIGHT).collect().await;
        for error in results.into_iter().filter_map(Result::err) {
            tracing::error!(
                tenant = %row.name, error,
                "a binding in a new namespace of a tenant that is not active was not deleted"
            );
        }
    }

    /// Deletes a binding, whatever its subjects are by now. Returns what failed, for people.
    async fn delete_binding(&self, binding: &Object) -> Result<(), String> {
        let deleted = match self.cluster.get_object(binding).await {
            Ok(Some(live)) => self.cluster.delete_object(&live).await,
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        deleted.map_err(|error| format!("{}: {}", title(binding), error_chain(&error)))
    }
}

/// Waits for all requests. Returns the first error.
async fn all<T>(
    requests: Vec<impl Future<Output = Result<T, ClusterError>>>,
) -> Result<(), ClusterError> {
    let results: Vec<Result<T, ClusterError>> =
        stream::iter(requests).buffer_unordered(MAX_IN_FLIGHT).collect().await;
    results.into_iter().try_for_each(|result| result.map(drop))
}

/// Adds labels and annotations below those that the namespace has.
fn add_metadata(
    namespace: &mut Namespace,
    (labels, annotations): (&BTreeMap<String, String>, &BTreeMap<String, String>),
) {
    let metadata = &mut namespace.metadata;
    for (desired, requested) in
        [(&mut metadata.labels, labels), (&mut metadata.annotations, annotations)]
    {
        let mut all = requested.clone();
        all.extend(desired.take().unwrap_or_default());
        *desired = Some(all).filter(|all| !all.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn requested_metadata_is_below_the_desired_one() {
        let of = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let labels = json!({"tenant-broker.io/tenant": "solar", "cost": "7"});
        let mut namespace: Namespace =
            serde_json::from_value(json!({"metadata": {"name": "solar-a", "labels": labels}}))
                .unwrap();
        let requested = of(&[("cost", "0"), ("tenant-broker.io/tenant", "lunar"), ("team", "a")]);
        add_metadata(&mut namespace, (&requested, &of(&[("note", "x")])));
        assert_eq!(
            namespace.metadata.labels,
            Some(of(&[("cost", "7"), ("team", "a"), ("tenant-broker.io/tenant", "solar")]))
        );
        assert_eq!(namespace.metadata.annotations, Some(of(&[("note", "x")])));
        let mut bare = Namespace::default();
        add_metadata(&mut bare, (&of(&[]), &of(&[])));
        assert_eq!(bare, Namespace::default());
    }

    #[tokio::test]
    async fn the_requests_after_a_failure_are_made() {
        let made = std::sync::atomic::AtomicU32::new(0);
        let requests = (0..20).map(|number| {
            let made = &made;
            async move {
                made.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                if number == 3 { Err(ClusterError::Conflict("no".to_owned())) } else { Ok(()) }
            }
        });
        let requests: Vec<_> = requests.collect();
        let result = all(requests).await;
        assert!(matches!(result, Err(ClusterError::Conflict(_))), "{result:?}");
        assert_eq!(made.into_inner(), 20);
    }
}
