//! How the cluster fails.

/// Why the cluster did not do what the broker asked.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// It does not answer, or is too busy: try again.
    #[error("the cluster does not answer")]
    Unavailable(#[source] kube::Error),
    /// It refused: the broker's rights or a policy stand against it.
    #[error("the cluster refused")]
    Refused(#[source] kube::Error),
    /// The object is not there.
    #[error("the object is not there")]
    NotFound(#[source] kube::Error),
    /// Something that is not ours, or not as we made it, is in the way.
    #[error("{0}")]
    Conflict(String),
    /// The quota controller has not written the status of a ResourceQuota: nothing limits the
    /// namespace yet.
    #[error(
        "the ResourceQuota {quota} of {namespace} is not enforced yet; look whether \
         kube-controller-manager runs its controller `resourcequota`"
    )]
    QuotaNotEnforced {
        /// Name of the namespace.
        namespace: String,
        /// Name of the ResourceQuota.
        quota: String,
    },
    /// A token of the wrong kind was issued, and dropped.
    #[error("the cluster issued a token that was dropped: {0}")]
    Token(String),
}

impl From<kube::Error> for ClusterError {
    fn from(error: kube::Error) -> Self {
        match &error {
            // 422 is how an admission policy without a reason refuses.
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
