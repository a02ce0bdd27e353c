//! How workspaces fail, and which problem each failure is.

use std::time::Duration;

use tenant_shared::{Code, WORKSPACE_LABEL, WorkspaceStatus};
use uuid::Uuid;

use crate::{
    cluster::ClusterError,
    problem::{Failure, SIGN_IN, chain, note},
    throttle::TooMany,
    workspace::bell::Unheard,
};

/// Why a verb on a workspace was not done.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// The tier is not one of ours.
    #[error("there is no tier {tier:?}; the tiers are {}", known.join(", "))]
    UnknownTier {
        /// What was asked for.
        tier: String,
        /// What there is.
        known: Vec<String>,
    },
    /// The workspace exists with another tier.
    #[error("your workspace has the tier {0:?}; a workspace keeps its tier")]
    OtherTier(String),
    /// The caller was suspended a moment ago.
    #[error("{SIGN_IN}")]
    NotActive,
    /// Too many calls.
    #[error("too many calls of init: the limit is per user and hour")]
    TooMany(TooMany),
    /// The kill switch was used.
    #[error("the workspace is suspended; ask an administrator")]
    Suspended,
    /// Not in a state that allows it.
    #[error("the workspace is {}", .0.as_str())]
    NotReady(WorkspaceStatus),
    /// A credential was revoked, and the ServiceAccount for new ones is not there yet.
    #[error(
        "a credential of the workspace was revoked a moment ago, and what new ones need is not \
         there yet; try again"
    )]
    Rotating,
    /// Resumed too early.
    #[error("old tokens are remembered by API servers for 10 s; resume again in {0} s")]
    TooEarly(u64),
    /// The owner may not sign in.
    #[error("its owner is suspended; let them in again first: kubectl tenant users resume {0}")]
    OwnerSuspended(Uuid),
    /// Something foreign in the cluster.
    #[error("something in the cluster is in the way: {0}; ask an administrator")]
    Conflict(String),
    /// Somebody took the label off the namespace that the broker made.
    #[error(
        "the namespace {namespace} does not carry the label {WORKSPACE_LABEL}={workspace} any more, so no \
         policy holds what is in it. Find out who took it off, and put it back as an administrator of \
         the policies: kubectl label --overwrite namespace {namespace} {WORKSPACE_LABEL}={workspace}"
    )]
    Relabelled {
        /// Its name.
        namespace: String,
        /// The workspace that it is of.
        workspace: Uuid,
    },
    /// The namespace is not the one that the broker made.
    #[error(
        "the namespace {0} is another one than the broker made, so the broker changes nothing in it. \
         Look at who has rights in it; delete it, and the suspension is finished"
    )]
    ForeignNamespace(String),
    /// A step was given up; it is tried again.
    #[error("the cluster did not do it within {} s", .0.as_secs())]
    TimedOut(Duration),
    /// The work was begun and did not end.
    #[error("the broker stopped before it was done; the sweep goes on with it")]
    Interrupted,
    /// The cluster.
    #[error("the cluster failed")]
    Cluster(#[source] ClusterError),
    /// Streams may be open still.
    #[error("the gateway did not confirm that open streams are closed")]
    StreamsOpen(#[from] Unheard),
    /// The database.
    #[error("the database failed")]
    Storage(#[from] sqlx::Error),
}

impl WorkspaceError {
    /// Why a step of a suspension is open, in a word for metrics.
    pub(super) fn cause(&self) -> &'static str {
        match self {
            Self::Relabelled { .. } => "relabelled",
            Self::ForeignNamespace(_) => "foreign",
            Self::TimedOut(_) => "timeout",
            Self::Cluster(ClusterError::Unavailable(_) | ClusterError::QuotaNotEnforced { .. }) => {
                "unavailable"
            }
            Self::StreamsOpen(_) => "streams_open",
            Self::Conflict(_) => "conflict",
            _ => "refused",
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

impl From<WorkspaceError> for Failure {
    fn from(error: WorkspaceError) -> Self {
        let text = error.to_string();
        match error {
            WorkspaceError::UnknownTier { .. } => Self::new(Code::UnknownTier, text),
            WorkspaceError::OtherTier(_) => Self::new(Code::TierConflict, text),
            WorkspaceError::NotActive => Self::new(Code::Unauthenticated, text),
            WorkspaceError::TooMany(TooMany { retry_after }) => {
                Self::new(Code::RateLimited, text).retry_after(retry_after)
            }
            WorkspaceError::Suspended => Self::new(Code::WorkspaceSuspended, text),
            WorkspaceError::NotReady(_) => Self::new(Code::WorkspaceNotReady, text),
            WorkspaceError::StreamsOpen(_) | WorkspaceError::Rotating => {
                Self::new(Code::WorkspaceNotReady, text).retry_after(1)
            }
            WorkspaceError::TooEarly(seconds) => {
                Self::new(Code::WorkspaceNotReady, text).retry_after(seconds)
            }
            WorkspaceError::OwnerSuspended(_) => Self::new(Code::OwnerSuspended, text),
            WorkspaceError::Conflict(_)
            | WorkspaceError::Relabelled { .. }
            | WorkspaceError::ForeignNamespace(_) => Self::new(Code::NamespaceConflict, text),
            WorkspaceError::TimedOut(_) | WorkspaceError::Interrupted => {
                Self::new(Code::ClusterUnavailable, text)
            }
            WorkspaceError::Cluster(error) => cluster_failure(&error),
            WorkspaceError::Storage(error) => Self::storage(&error),
        }
    }
}

/// What a person is told when the cluster fails. What it said goes to the log: it names roles and
/// rights that are nobody's business.
pub fn cluster_failure(error: &ClusterError) -> Failure {
    note("cause", chain(error));
    match error {
        ClusterError::Unavailable(_) => Failure::new(
            Code::ClusterUnavailable,
            "the cluster does not answer; try again, what was begun will be finished",
        ),
        ClusterError::QuotaNotEnforced { .. } => Failure::new(
            Code::ClusterUnavailable,
            "the cluster does not enforce the quota of the namespace yet; try again, what was begun will \
             be finished",
        ),
        ClusterError::Token(_) => Failure::new(
            Code::TokenLifetimeRefused,
            "the cluster issued a token that breaks the two-hour rule; it was dropped, tell an operator",
        ),
        ClusterError::Refused(_) | ClusterError::NotFound(_) | ClusterError::Conflict(_) => {
            Failure::new(
                Code::ClusterRefused,
                "the cluster refused; an operator finds the cause in the broker's log by the request id",
            )
        }
    }
}
