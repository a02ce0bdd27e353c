//! Errors of the cluster.

/// A request to the cluster failed.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The API server does not respond or is overloaded; a retry may succeed.
    #[error("the cluster does not answer")]
    Unavailable(#[source] kube::Error),
    /// RBAC, an admission policy or validation refused the request.
    #[error("the cluster refused")]
    Refused(#[source] kube::Error),
    /// The object does not exist.
    #[error("the object does not exist")]
    NotFound(#[source] kube::Error),
    /// An object that the broker did not make, or that was changed, has the name.
    #[error("{0}")]
    Conflict(String),
    /// The quota controller has not written the status of a ResourceQuota, so nothing limits the
    /// namespace yet.
    #[error(
        "the ResourceQuota {quota} of {namespace} is not enforced yet; check that \
         kube-controller-manager runs its controller `resourcequota`"
    )]
    QuotaNotEnforced {
        /// Name of the namespace.
        namespace: String,
        /// Name of the ResourceQuota.
        quota: String,
    },
    /// No cluster of this name is configured.
    #[error("the cluster {0} is not configured (cluster.name)")]
    NotConfigured(String),
    /// The cluster issued a token that is not as requested; it was dropped.
    #[error("the cluster issued a token that was dropped: {0}")]
    Token(String),
}

impl From<kube::Error> for ClusterError {
    fn from(error: kube::Error) -> Self {
        match &error {
            // An admission policy without a reason refuses with 422.
            kube::Error::Api(status) => match status.code {
                404 => Self::NotFound(error),
                409 => Self::Conflict(status.message.clone()),
                429 | 500.. => Self::Unavailable(error),
                _ => Self::Refused(error),
            },
            _ => Self::Unavailable(error),
        }
    }
}
