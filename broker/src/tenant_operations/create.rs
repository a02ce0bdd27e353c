//! Creation of a namespace by an owner of its tenant.
//!
//! The row is claimed, counted and recorded before the namespace is created. A namespace that exists
//! already is not touched, and the claim is released.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::{api::core::v1::Namespace, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use tenant_shared::{CreateNamespaceRequest, WorkspaceStatus};
use tracing::Instrument as _;
use uuid::Uuid;

use super::{
    TenantOperations, authorize::authorize_on, current_tenant::CurrentTenant, error::TenantError,
};
use crate::{
    access::{CreateNamespace, Permit},
    audit::{self, Action},
    base::{error_chain, request_context::in_request_context},
    cluster::{ClusterError, Object},
    identity::Caller,
    tenant::{
        Claim, NamespaceStatus, Tenant, TenantName, TenantRow, TenantSettings,
        check_requested_metadata, check_required_metadata,
    },
    tenant_controller::{CreateNamespaceError, NamespaceRequest, has_label_of_a_move},
};

/// Characters of the name of a namespace in an audit row.
const MAX_NAME_CHARS: usize = 63;

/// How long a repeated request waits until the namespace has all of its objects.
const COMPLETE_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between two looks at the row.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A namespace has not all of its objects in time.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("it does not have all of its objects within {COMPLETE_TIMEOUT:?}")]
struct NotComplete;

/// A namespace whose row is the caller's claim.
#[derive(Debug)]
struct ClaimedNamespace<'a> {
    current: &'a CurrentTenant,
    name: &'a str,
    user: Uuid,
    /// Whether an earlier request of the same user claimed it, and did not finish.
    is_retry: bool,
}

impl TenantOperations {
    /// Creates a namespace of a tenant with all of its objects, and returns it as the API server
    /// does, once the API server grants the caller their rights in it; after 2 s without that. The
    /// caller becomes a member first. A request that was interrupted can be repeated.
    ///
    /// # Errors
    /// [`TenantError::NotFound`], also if the caller may not see the tenant; the caller does not own
    /// it; the tenant, the user or the membership is suspended; name, labels or annotations are not
    /// allowed; the quota is exceeded; the namespace exists; too many creations of the caller are
    /// under way; or the cluster or the database failed.
    #[tracing::instrument(level = "debug", skip_all, fields(tenant = %tenant))]
    pub async fn create_namespace(
        &self,
        caller: &Caller,
        tenant: &TenantName,
        request: &CreateNamespaceRequest,
    ) -> Result<Namespace, TenantError> {
        // The creation goes on if the client disconnects: the controller knows neither labels nor
        // annotations of the request, and whether the tenant is still active is checked at the end.
        let creation_permit = self.creations.acquire(caller.user_id()).await?;
        let creation = {
            let (operations, caller) = (self.clone(), caller.clone());
            let (tenant, request) = (tenant.clone(), request.clone());
            async move {
                let _creation_permit = creation_permit;
                let created = operations.create(&caller, &tenant, &request).await;
                if let Err(error) = &created
                    && error.is_refusal()
                {
                    operations.record_refused_creation(&caller, &tenant, &request, error).await?;
                }
                created
            }
        };
        match tokio::spawn(in_request_context(creation.in_current_span())).await {
            Ok(created) => created,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(error) => {
                let namespace = request.name.clone();
                Err(TenantError::Unfinished { namespace, cause: error.into() })
            }
        }
    }

    async fn record_refused_creation(
        &self,
        caller: &Caller,
        tenant: &TenantName,
        request: &CreateNamespaceRequest,
        error: &TenantError,
    ) -> Result<(), TenantError> {
        let action = Action::CreateNamespace;
        let reason = format!("{}: {error}", reason_of(tenant, &request.name));
        self.metrics.action(action.as_str(), "refused");
        audit::record_refusal(&self.db, &self.clock, caller.event(action), &reason).await?;
        Ok(())
    }

    async fn create(
        &self,
        caller: &Caller,
        tenant: &TenantName,
        request: &CreateNamespaceRequest,
    ) -> Result<Namespace, TenantError> {
        let created = Box::pin(self.create_now(caller, tenant, request)).await;
        let Err(refusal) = &created else { return created };
        match Box::pin(self.wait_until_recorded_as_gone(tenant, refusal)).await {
            Ok(true) => {}
            Ok(false) => return created,
            // The refusal holds all the same, and is recorded.
            Err(error) => {
                let error = error_chain(&error);
                tracing::warn!(%tenant, error, "looking for the end of a namespace failed");
                return created;
            }
        }
        // Rights and rules may have changed while the request waited.
        Box::pin(self.create_now(caller, tenant, request)).await
    }

    async fn create_now(
        &self,
        caller: &Caller,
        tenant: &TenantName,
        request: &CreateNamespaceRequest,
    ) -> Result<Namespace, TenantError> {
        let current = self.current_tenant(caller, tenant).await?;
        let permit = authorize_on::<CreateNamespace, _>(caller, current)?;
        let (caller, current) = (permit.caller(), permit.resource());
        current.require_active()?;
        self.check_name(&current.tenant, &request.name).await?;
        check_metadata(&current.tenant, request, &self.settings)?;
        let membership = self.membership(caller, current).await?;
        let claimed = self.claim(&permit, &request.name, membership).await?;
        let CreateNamespaceRequest { name, labels, annotations } = request;
        let request = NamespaceRequest { name, labels, annotations };
        let tenant = (&current.tenant, current.generation);
        // The review needs a token, which is issued while the namespace is created.
        let (created, review) = tokio::join!(
            Box::pin(self.controller.create_namespace(&current.row, tenant, request)),
            Box::pin(self.prepare_review(caller, current, membership)),
        );
        match created {
            Ok(created) => {
                let of = (&current.row.name, name.as_str());
                self.wait_until_rbac_allows(review, of, &created.bindings).await;
                Ok(created.namespace)
            }
            Err(error) => {
                let namespace = Box::pin(self.after_failure(&claimed, error)).await?;
                Box::pin(self.wait_until_rbac_allows_again(review, current, name)).await;
                Ok(namespace)
            }
        }
    }

    /// The membership of the caller, who becomes a member if they are none. Whether the user may sign
    /// in was checked when their rights were read.
    async fn membership(
        &self,
        caller: &Caller,
        current: &CurrentTenant,
    ) -> Result<Uuid, TenantError> {
        let memberships = self.workspaces.memberships_of(caller.user_id()).await?;
        let ready = memberships.into_iter().find(|membership| {
            membership.tenant == current.row.id && membership.status == WorkspaceStatus::Provisioned
        });
        match ready {
            Some(membership) => Ok(membership.workspace),
            None => Ok(Box::pin(self.admit(caller, current)).await?.workspace.id),
        }
    }

    /// Claims the namespace, with the audit row of the request.
    async fn claim<'a>(
        &self,
        permit: &'a Permit<CreateNamespace, CurrentTenant>,
        name: &'a str,
        membership: Uuid,
    ) -> Result<ClaimedNamespace<'a>, TenantError> {
        let (caller, current) = (permit.caller(), permit.resource());
        let (tenant, user) = (&current.row.name, caller.user_id());
        let event = audit::Event {
            workspace_id: Some(membership),
            reason: Some(reason_of(tenant, name)),
            ..caller.event(Action::CreateNamespace)
        };
        let quota = current.tenant.namespace_options.quota;
        let claim = self.tenants.claim_for_user(current.row.id, name, user, quota, event).await?;
        let is_retry = match claim {
            None => return Err(TenantError::NotActive { tenant: tenant.clone() }),
            Some(Claim::Created) => {
                self.metrics.action(Action::CreateNamespace.as_str(), "success");
                false
            }
            Some(Claim::Exists(row))
                if row.status == NamespaceStatus::Creating && row.made_by == Some(user) =>
            {
                true
            }
            Some(Claim::Exists(_) | Claim::OtherTenant) => {
                let (tenant, namespace) = (tenant.clone(), name.to_owned());
                return Err(TenantError::NamespaceExists { tenant, namespace });
            }
            Some(Claim::QuotaExceeded { used, quota }) => {
                return Err(TenantError::QuotaExceeded { tenant: tenant.clone(), used, quota });
            }
        };
        Ok(ClaimedNamespace { current, name, user, is_retry })
    }

    /// Decides what a failed creation means. The claim is released if the namespace was not created.
    /// After every other failure it stays, and the controller finishes the namespace.
    async fn after_failure(
        &self,
        claimed: &ClaimedNamespace<'_>,
        error: CreateNamespaceError,
    ) -> Result<Namespace, TenantError> {
        let ClaimedNamespace { current, name, user, is_retry } = *claimed;
        let (row, namespace) = (&current.row, name.to_owned());
        match error {
            CreateNamespaceError::Exists(_) => match self.live_namespace(name).await? {
                // Without the row it would not count, and another request may be about to fill it.
                // One that an administrator labelled for a move becomes the tenant's only by that.
                Some(live)
                    if row.name.is_tenant_of(&live.metadata) && !has_label_of_a_move(&live) =>
                {
                    if is_retry {
                        self.wait_until_complete(row, name).await?;
                        Ok(live)
                    } else {
                        Err(TenantError::NamespaceExists { tenant: row.name.clone(), namespace })
                    }
                }
                _ => {
                    self.tenants.release_claim(row.id, name, user).await?;
                    Err(TenantError::NamespaceExists { tenant: row.name.clone(), namespace })
                }
            },
            CreateNamespaceError::NotCreated { source, .. } => {
                self.release_own_claim(claimed).await?;
                Err(TenantError::NotCreated { namespace, cause: source })
            }
            CreateNamespaceError::Suspended(tenant) => {
                self.release_own_claim(claimed).await?;
                Err(TenantError::NotActive { tenant })
            }
            CreateNamespaceError::Unfinished { source, .. } => {
                Err(TenantError::Unfinished { namespace, cause: source })
            }
            CreateNamespaceError::NotActive(tenant) => Err(TenantError::NotActive { tenant }),
        }
    }

    /// Releases the claim of a namespace that was not created. An earlier request that made the claim
    /// may still create it.
    async fn release_own_claim(&self, claimed: &ClaimedNamespace<'_>) -> sqlx::Result<()> {
        if !claimed.is_retry {
            let (tenant, name) = (claimed.current.row.id, claimed.name);
            self.tenants.release_claim(tenant, name, claimed.user).await?;
        }
        Ok(())
    }

    /// Waits until a namespace that an earlier request of the same user created has all of its
    /// objects. That request or the controller creates them.
    async fn wait_until_complete(&self, tenant: &TenantRow, name: &str) -> Result<(), TenantError> {
        let complete = async {
            loop {
                let row = self.tenants.namespace_row(name).await?;
                match row.filter(|row| row.tenant_id == tenant.id).map(|row| row.status) {
                    Some(NamespaceStatus::Creating) => {}
                    Some(NamespaceStatus::Active) => return Ok(()),
                    _ => {
                        let (tenant, namespace) = (tenant.name.clone(), name.to_owned());
                        return Err(TenantError::NamespaceExists { tenant, namespace });
                    }
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        let late = |_| {
            let (namespace, cause) = (name.to_owned(), NotComplete.into());
            Err(TenantError::Unfinished { namespace, cause })
        };
        tokio::time::timeout(COMPLETE_TIMEOUT, complete).await.unwrap_or_else(late)
    }

    pub(super) async fn live_namespace(
        &self,
        name: &str,
    ) -> Result<Option<Namespace>, ClusterError> {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        let named = Object::Namespace(Box::new(Namespace { metadata, ..Namespace::default() }));
        Ok(match self.cluster.get_object(&named).await? {
            Some(Object::Namespace(live)) => Some(*live),
            _ => None,
        })
    }
}

/// Checks the labels and annotations of a request. Those that the Tenant gives each namespace count
/// for the ones that it demands.
fn check_metadata(
    tenant: &Tenant,
    request: &CreateNamespaceRequest,
    settings: &TenantSettings,
) -> Result<(), TenantError> {
    check_requested_metadata(&request.labels, &request.annotations, settings)
        .map_err(|fault| TenantError::InvalidMetadata(fault.to_string()))?;
    let options = &tenant.namespace_options;
    let with = |requested: &BTreeMap<String, String>, given: &BTreeMap<String, String>| {
        let mut all = requested.clone();
        all.extend(given.clone());
        all
    };
    let given = settings.without_protected(&options.additional_metadata.labels);
    let labels = with(&request.labels, &given);
    let annotations = with(&request.annotations, &options.additional_metadata.annotations);
    check_required_metadata(&options.required_metadata, &labels, &annotations)
        .map_err(|missing| TenantError::MissingMetadata { tenant: tenant.name.clone(), missing })
}

/// The namespace of an audit row, which has no column for it.
fn reason_of(tenant: &TenantName, namespace: &str) -> String {
    let printable = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    let namespace: String = namespace.chars().take(MAX_NAME_CHARS).map(printable).collect();
    format!("namespace {namespace} of tenant {tenant}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tenant_shared::TENANT_LABEL;

    use super::*;

    fn solar() -> Tenant {
        let spec = json!({
            "owners": [{"kind": "User", "name": "alice"}],
            "namespaceOptions": {
                "additionalMetadata": {"labels": {"team": "a"}},
                "requiredMetadata": {"labels": {"env": "prod|test", "team": "a"}},
            },
        });
        Tenant::parse("solar", &spec).unwrap()
    }

    fn request(labels: &[(&str, &str)]) -> CreateNamespaceRequest {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        CreateNamespaceRequest {
            name: "solar-a".to_owned(),
            labels: labels.collect(),
            annotations: BTreeMap::new(),
        }
    }

    #[test]
    fn metadata_of_the_tenant_counts_for_what_it_demands() {
        let settings = TenantSettings::default();
        let check = |labels: &[(&str, &str)]| check_metadata(&solar(), &request(labels), &settings);
        assert!(check(&[("env", "prod")]).is_ok());
        // That of the tenant wins.
        assert!(check(&[("env", "test"), ("team", "b")]).is_ok());
        for labels in [&[("env", "x")][..], &[]] {
            let missing = check(labels).unwrap_err();
            assert_eq!(
                missing.to_string(),
                "tenant solar requires metadata of its namespaces (requiredMetadata): the \
                 namespace needs the label env with a value that matches prod|test; add what is \
                 missing, or ask an administrator"
            );
        }
        let refused = check(&[("env", "prod"), (TENANT_LABEL, "lunar")]).unwrap_err();
        assert!(matches!(refused, TenantError::InvalidMetadata(_)), "{refused}");
        // A label that the operator protects is not given.
        let pattern = "^team$".to_owned().into();
        let settings =
            TenantSettings { protected_labels: Some(pattern), ..TenantSettings::default() };
        let missing = check_metadata(&solar(), &request(&[("env", "prod")]), &settings);
        assert!(missing.unwrap_err().to_string().contains("needs the label team"));
    }

    #[test]
    fn a_long_name_does_not_fill_the_audit_trail_and_has_no_control_characters() {
        let reason = reason_of(&"solar".parse().unwrap(), "a\0\n");
        assert_eq!(reason, "namespace a\u{fffd}\u{fffd} of tenant solar");
        let reason = reason_of(&"solar".parse().unwrap(), &"x".repeat(1000));
        assert_eq!(reason, format!("namespace {} of tenant solar", "x".repeat(63)));
    }
}
