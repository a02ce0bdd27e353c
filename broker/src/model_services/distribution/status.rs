//! The status of the namespace's distribution.

use tenant_shared::DistributionStatus;

use super::super::{InNamespace, failure::Failure};

impl InNamespace {
    /// The status of the first distribution by name; `None` if there is none, or if the kind is not
    /// installed.
    ///
    /// # Errors
    /// The caller may not list distributions; the API server does not answer.
    pub(in crate::model_services) async fn distribution_status(
        &self,
    ) -> Result<Option<DistributionStatus>, Failure> {
        let found = self.distributions().await?.unwrap_or_default();
        Ok(found.into_iter().next().map(super::view::LlamaStackDistribution::into_api))
    }
}
