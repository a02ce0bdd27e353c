//! Errors of workspace operations.

use std::time::Duration;

use tenant_shared::{WORKSPACE_LABEL, WorkspaceStatus};
use uuid::Uuid;

use super::{WorkspaceRow, notifier::NotAcknowledged};
use crate::{
    access::AccessError, base::rate_limit::RateLimited, cluster::ClusterError, identity::SIGN_IN,
};

/// Values of the label `cause` of an open step of a suspension in metrics.
pub const REVOCATION_FAILURE_CAUSES: [&str; 7] =
    ["unavailable", "timeout", "refused", "conflict", "relabelled", "foreign", "streams_open"];

/// Error of an operation on a workspace.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// No tier of this name is configured.
    #[error("there is no tier {tier:?}; the tiers are {}", known.join(", "))]
    UnknownTier {
        /// The requested tier.
        tier: String,
        /// Names of the configured tiers.
        known: Vec<String>,
    },
    /// The workspace exists with this other tier.
    #[error("your workspace has the tier {0:?}; a workspace keeps its tier")]
    OtherTier(String),
    /// The caller was suspended after the request was authenticated.
    #[error("{SIGN_IN}")]
    NotActive,
    /// The rate limit of `init` is exceeded.
    #[error("too many calls of init: the limit is per user and hour")]
    TooMany(RateLimited),
    /// The workspace is suspended.
    #[error("the workspace is suspended; ask an administrator")]
    Suspended,
    /// The workspace is in this status, which does not allow the operation.
    #[error("the workspace is {}", .0.as_str())]
    NotReady(WorkspaceStatus),
    /// A credential was revoked, and the ServiceAccount for new credentials does not exist yet.
    #[error(
        "a credential of the workspace was just revoked, and the ServiceAccount for new ones does \
         not exist yet; try again"
    )]
    Rotating,
    /// The workspace can be resumed after this number of seconds.
    #[error("API servers accept old tokens from their cache for 10 s; resume again in {0} s")]
    TooEarly(u64),
    /// The user left this tenant, or lost the rights in it.
    #[error(
        "the user is no member of tenant {0} any more; have the user named by the Tenant, and sign \
         in again"
    )]
    NotMember(String),
    /// This tenant is suspended or closed, so nobody becomes a member.
    #[error("the tenant {0} is suspended or was deleted; ask an administrator")]
    TenantNotActive(String),
    /// The home of a tenant, a namespace of this name, does not exist yet.
    #[error("the home of the tenant, namespace {0}, does not exist yet; try again")]
    NoHome(String),
    /// The owner, who has this identifier, is suspended.
    #[error("its owner is suspended; resume the owner first: kubectl tenant users resume {0}")]
    OwnerSuspended(Uuid),
    /// An object in the cluster conflicts with the workspace: it is not ours or differs from ours.
    #[error("an object in the cluster conflicts with the workspace: {0}; ask an administrator")]
    Conflict(String),
    /// The namespace that the broker created has lost its label.
    #[error(
        "the namespace {namespace} no longer has the label {WORKSPACE_LABEL}={workspace}, so no \
         policy applies to it. Find out who removed the label, and restore it as an \
         administrator of the policies: kubectl label --overwrite namespace {namespace} \
         {WORKSPACE_LABEL}={workspace}"
    )]
    Relabelled {
        /// Name of the namespace.
        namespace: String,
        /// The workspace that the namespace belongs to.
        workspace: Uuid,
    },
    /// The namespace of this name is not the one that the broker created.
    #[error(
        "the namespace {0} is not the one that the broker created, so the broker changes nothing \
         in it. Check who has rights in it; once it is deleted, the sweep finishes the suspension"
    )]
    ForeignNamespace(String),
    /// A step did not finish within this time. It is retried.
    #[error("the cluster did not finish the step within {} s", .0.as_secs())]
    TimedOut(Duration),
    /// The task ended before its work was done.
    #[error("the broker stopped before the operation was done; the sweep will finish it")]
    Interrupted,
    /// The caller may not do this, or there is no such workspace.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The cluster failed.
    #[error("the cluster failed")]
    Cluster(#[source] ClusterError),
    /// The gateway did not acknowledge in time, so streams may still be open.
    #[error("the gateway did not confirm that open streams are closed")]
    StreamsOpen(#[from] NotAcknowledged),
    /// The database failed.
    #[error("the database failed")]
    Storage(#[from] sqlx::Error),
}

impl WorkspaceError {
    /// The error for a namespace without our label.
    pub(super) fn relabelled(workspace: &WorkspaceRow) -> Self {
        Self::Relabelled { namespace: workspace.k8s_namespace.clone(), workspace: workspace.id }
    }

    /// Cause of an open step of a suspension: one of [`REVOCATION_FAILURE_CAUSES`].
    pub(super) fn cause(&self) -> &'static str {
        let [unavailable, timeout, refused, conflict, relabelled, foreign, streams_open] =
            REVOCATION_FAILURE_CAUSES;
        match self {
            Self::Relabelled { .. } => relabelled,
            Self::ForeignNamespace(_) => foreign,
            Self::TimedOut(_) => timeout,
            Self::Cluster(ClusterError::Unavailable(_) | ClusterError::QuotaNotEnforced { .. }) => {
                unavailable
            }
            Self::StreamsOpen(_) => streams_open,
            Self::Conflict(_) => conflict,
            _ => refused,
        }
    }
}

impl From<ClusterError> for WorkspaceError {
    fn from(error: ClusterError) -> Self {
        match error {
            ClusterError::Conflict(what) => Self::Conflict(what),
            other => Self::Cluster(other),
        }
    }
}
