//! The domain of the cluster's routes. It may be read from the cluster with the broker's own credential,
//! and kept for a while, because it is the same for every caller and no secret.

use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use super::{ModelServices, failure::Failure, settings::ClusterDomain};
use crate::{base::error_chain, cluster::ClusterError};

/// How long a domain is kept.
const DOMAIN_TTL: Duration = Duration::from_mins(10);
/// How long the answer is kept that there is none, or that it cannot be read.
const FAILURE_TTL: Duration = Duration::from_secs(5);
/// Timeout of the read.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// Result of the read of the domain.
#[derive(Clone, Debug)]
enum Read {
    Domain(String),
    /// There is no such object, or it names no domain.
    Missing,
    /// It cannot be read, for this cause.
    Failed(String),
}

/// The last answer and when it came. Callers wait for a read that is under way.
#[derive(Debug, Default)]
pub(super) struct LastRead(Mutex<Option<(Instant, Read)>>);

impl Read {
    fn ttl(&self) -> Duration {
        match self {
            Self::Domain(_) => DOMAIN_TTL,
            Self::Missing | Self::Failed(_) => FAILURE_TTL,
        }
    }
}

impl ModelServices {
    /// The domain of the cluster's routes; `None` if it is not configured.
    ///
    /// # Errors
    /// The domain is to be read from the cluster, and the read failed or found none.
    pub(super) async fn cluster_domain(&self) -> Result<Option<String>, Failure> {
        match &self.0.settings.cluster_domain {
            ClusterDomain::Unknown => Ok(None),
            ClusterDomain::Known(domain) => Ok(Some(domain.clone())),
            ClusterDomain::Auto => match self.read_domain().await {
                Read::Domain(domain) => Ok(Some(domain)),
                Read::Missing => Err(Failure::not_found(
                    "the domain of the cluster is not known: ingresses.config.openshift.io has no \
                     object cluster with a domain; an operator of the broker sets \
                     model_services.cluster_domain",
                )),
                Read::Failed(cause) => Err(Failure::internal(cause)),
            },
        }
    }

    async fn read_domain(&self) -> Read {
        let mut last = self.0.domain.0.lock().await;
        if let Some((at, read)) = &*last
            && at.elapsed() < read.ttl()
        {
            return read.clone();
        }
        let read = tokio::time::timeout(READ_TIMEOUT, self.0.cluster.ingress_domain()).await;
        let read = match read {
            Ok(Ok(Some(domain))) => Read::Domain(domain),
            Ok(Ok(None)) => Read::Missing,
            Ok(Err(error @ ClusterError::Refused(_))) => Read::Failed(format!(
                "the broker may not read the domain of the cluster (ingresses.config.openshift.io, \
                 cluster): run tenant-broker install --apply: {}",
                error_chain(&error)
            )),
            Ok(Err(error)) => Read::Failed(error_chain(&error)),
            Err(_) => Read::Failed("the API server did not answer in time".to_owned()),
        };
        *last = Some((Instant::now(), read.clone()));
        read
    }
}
