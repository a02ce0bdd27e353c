//! The wait until the API server grants the rights in a new namespace.
//!
//! The API server's authorizer answers from a copy of the RoleBindings, which follows the storage by
//! some milliseconds. It gets them in the order in which they were written, so the broker asks, with
//! the token of the creator's membership, for an access that the last one grants. With several API
//! servers behind one address this is true of the one that answers.

use std::{collections::BTreeMap, time::Duration};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, RoleBinding};
use uuid::Uuid;

use super::{
    TenantOperations, current_tenant::CurrentTenant, error::Cause, probe_access::probe_access,
};
use crate::{
    access::UseWorkspace,
    base::error_chain,
    cluster::{AccessReview, ClusterError},
    credential::CachedToken,
    identity::Caller,
    tenant::{ClusterRoleName, TenantName, home_name, member_account_name},
};

/// How long a creation waits for the rights, and for what the wait needs.
const IN_FORCE_TIMEOUT: Duration = Duration::from_secs(2);
/// First pause between two reviews. It doubles up to [`MAX_POLL_INTERVAL`].
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Longest pause between two reviews.
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// ClusterRoles that are read concurrently.
const MAX_CONCURRENT_READS: usize = 8;

/// The rights are not in force in time.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the API server does not grant them within {IN_FORCE_TIMEOUT:?}")]
struct NotInForce;

/// Inputs of the wait.
#[derive(Debug)]
pub(super) struct MemberReview {
    /// Namespace and name of the member's ServiceAccount.
    account: (String, String),
    token: CachedToken,
    /// Rules of the member's ClusterRoles.
    rules: BTreeMap<String, Vec<PolicyRule>>,
}

impl TenantOperations {
    /// Gets the token of a membership, and reads the ClusterRoles of the member.
    ///
    /// # Errors
    /// A part failed, or all did not end in time.
    pub(super) async fn prepare_review(
        &self,
        caller: &Caller,
        current: &CurrentTenant,
        membership: Uuid,
    ) -> Result<MemberReview, Cause> {
        let token = async {
            let permit = self.workspaces.authorize::<UseWorkspace>(caller, membership).await?;
            let active = self.workspaces.active(&permit)?;
            Ok::<_, Cause>(Box::pin(self.tokens.get(&active)).await?)
        };
        let reads: Vec<_> = current.rights.roles.keys().map(|role| self.rules_of(role)).collect();
        let rules = async {
            let rules = stream::iter(reads).buffer_unordered(MAX_CONCURRENT_READS);
            Ok(rules.try_collect().await?)
        };
        let both = async { tokio::try_join!(token, rules) };
        let (token, rules) = tokio::time::timeout(IN_FORCE_TIMEOUT, both).await??;
        let account = (home_name(&current.row.name), member_account_name(caller.user_id()));
        Ok(MemberReview { account, token, rules })
    }

    async fn rules_of(
        &self,
        role: &ClusterRoleName,
    ) -> Result<(String, Vec<PolicyRule>), ClusterError> {
        let live = self.cluster.get_opt::<ClusterRole>(role.as_str()).await?;
        Ok((role.to_string(), live.and_then(|role| role.rules).unwrap_or_default()))
    }

    /// Waits until the API server grants the member what these bindings of a namespace give. A failure
    /// is logged only, because the namespace exists, and its bindings come into force without the
    /// broker.
    pub(super) async fn wait_until_rbac_allows(
        &self,
        review: Result<MemberReview, Cause>,
        (tenant, namespace): (&TenantName, &str),
        bindings: &[RoleBinding],
    ) {
        let result = match &review {
            Ok(review) => self.poll_review(review, namespace, bindings).await,
            Err(error) => Err(error_chain(&**error)),
        };
        if let Err(error) = result {
            tracing::warn!(
                %tenant, namespace, error,
                "rights in a new namespace may not be in force yet"
            );
        }
    }

    async fn poll_review(
        &self,
        review: &MemberReview,
        namespace: &str,
        bindings: &[RoleBinding],
    ) -> Result<(), String> {
        let roles = review.roles(bindings);
        let Some(access) = probe_access(&roles) else { return Ok(()) };
        let access = AccessReview { namespace, ..access };
        let mut last_error = None;
        let granted = async {
            let mut pause = MIN_POLL_INTERVAL;
            loop {
                let authorization = review.token.authorization();
                match self.cluster.is_allowed_with(authorization, access).await {
                    Ok(true) => return,
                    Ok(false) => last_error = None,
                    Err(error) => last_error = Some(error_chain(&error)),
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(MAX_POLL_INTERVAL);
            }
        };
        match tokio::time::timeout(IN_FORCE_TIMEOUT, granted).await {
            Ok(()) => Ok(()),
            Err(_) => Err(last_error.unwrap_or_else(|| NotInForce.to_string())),
        }
    }

    /// Like [`Self::wait_until_rbac_allows`], for a namespace that an earlier request created.
    pub(super) async fn wait_until_rbac_allows_again(
        &self,
        review: Result<MemberReview, Cause>,
        CurrentTenant { row, tenant, .. }: &CurrentTenant,
        namespace: &str,
    ) {
        let of = (&row.name, namespace);
        match self.controller.bindings_of_namespace(row, tenant, namespace).await {
            Ok(bindings) => self.wait_until_rbac_allows(review, of, &bindings).await,
            Err(error) => self.wait_until_rbac_allows(Err(error.into()), of, &[]).await,
        }
    }
}

impl MemberReview {
    /// The rules of the roles that these bindings give the member, in the order of their writes.
    fn roles(&self, bindings: &[RoleBinding]) -> Vec<&[PolicyRule]> {
        let (home, account) = &self.account;
        let names_member = |binding: &&RoleBinding| {
            binding.subjects.iter().flatten().any(|subject| {
                subject.kind == "ServiceAccount"
                    && subject.name == *account
                    && subject.namespace.as_ref() == Some(home)
            })
        };
        let mut bindings: Vec<&RoleBinding> = bindings.iter().filter(names_member).collect();
        bindings.sort_by_key(|binding| version_of(binding));
        let rules = bindings.iter().filter_map(|binding| self.rules.get(&binding.role_ref.name));
        rules.map(Vec::as_slice).collect()
    }
}

/// The version of an object. Those of one kind are ordered (KEP-5504).
fn version_of(binding: &RoleBinding) -> Option<u128> {
    binding.metadata.resource_version.as_ref()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn binding(role: &str, account: &str, version: &str) -> RoleBinding {
        let subjects = json!([
            {"kind": "User", "name": "alice", "apiGroup": "rbac.authorization.k8s.io"},
            {"kind": "ServiceAccount", "name": account, "namespace": "tenant-solar"},
        ]);
        serde_json::from_value(json!({
            "metadata": {"name": role, "namespace": "solar-a", "resourceVersion": version},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": subjects,
        }))
        .unwrap()
    }

    #[test]
    fn the_roles_of_the_member_are_in_the_order_of_their_writes() {
        let rule =
            |role: &str| PolicyRule { verbs: vec![role.to_owned()], ..PolicyRule::default() };
        let rules = ["admin", "view", "edit"].map(|role| (role.to_owned(), vec![rule(role)]));
        let review = MemberReview {
            account: ("tenant-solar".to_owned(), "member-1".to_owned()),
            token: CachedToken::for_tests(),
            rules: rules.into(),
        };
        let bindings = [
            binding("admin", "member-1", "1000"),
            binding("view", "member-1", "999"),
            binding("edit", "member-2", "1001"),
            binding("unknown", "member-1", "1002"),
        ];
        let verbs: Vec<&str> =
            review.roles(&bindings).into_iter().map(|rules| rules[0].verbs[0].as_str()).collect();
        assert_eq!(verbs, ["view", "admin"]);
    }
}
