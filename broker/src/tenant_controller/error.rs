//! Errors of a run.

use crate::{cluster::ClusterError, workspace::WorkspaceError};

/// A tenant could not be reconciled.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// A request to the cluster failed.
    #[error("the cluster did not carry out a request")]
    Cluster(#[from] ClusterError),
    /// The database failed, or has a row that this version cannot read.
    #[error("the database failed")]
    Database(#[from] sqlx::Error),
    /// The memberships could not be read or ended.
    #[error("the memberships of the tenant could not be read or ended")]
    Membership(#[from] WorkspaceError),
}
