//! Settings of model services.

use std::net::SocketAddr;

use http::HeaderName;

use super::DistributionSettings;

/// The right that a caller needs in a namespace for all operations there: to list this resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessCheck {
    /// Plural name of the resource.
    pub resource: String,
    pub group: String,
}

impl std::str::FromStr for AccessCheck {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_name = |text: &str| {
            let is_part = |part: &str| tenant_shared::is_dns_label(part);
            text.len() <= 253 && text.split('.').all(is_part)
        };
        match text.split_once('.') {
            Some((resource, group)) if is_name(resource) && is_name(group) => {
                Ok(Self { resource: resource.to_owned(), group: group.to_owned() })
            }
            _ => Err("a resource with its API group, for example \
                      llamastackdistributions.llamastack.io"),
        }
    }
}

/// The domain of the cluster's routes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClusterDomain {
    /// Not configured.
    #[default]
    Unknown,
    /// The configuration names it.
    Known(String),
    /// The broker reads it from the cluster (`ingresses.config.openshift.io`).
    Auto,
}

/// Requests with one Kubernetes token, in each replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenLimits {
    /// Requests per second; the burst is four times as many.
    pub requests_per_second: u32,
    /// Concurrent requests.
    pub requests_at_once: u32,
}

/// Settings of model services.
#[derive(Clone, Debug)]
pub struct ModelServicesSettings {
    /// Whether the broker serves them.
    pub enabled: bool,
    /// Address of a listener of their own.
    pub listen: Option<SocketAddr>,
    /// Request header with the caller's token.
    pub token_header: HeaderName,
    /// Text before the token in that header.
    pub token_prefix: String,
    /// Whether callers may use Kubernetes tokens of their own.
    pub kubernetes_tokens: bool,
    /// The right that a caller needs in a namespace.
    pub access_check: AccessCheck,
    pub cluster_domain: ClusterDomain,
    pub distribution: DistributionSettings,
    /// Limits of each Kubernetes token.
    pub token_limits: TokenLimits,
    /// Installations and deletions of one user, and in one namespace, within five minutes.
    pub changes_per_user: u32,
}

impl ModelServicesSettings {
    /// Whether the broker reads the domain of the cluster's routes with its own credential.
    pub fn reads_cluster_domain(&self) -> bool {
        self.enabled && self.cluster_domain == ClusterDomain::Auto
    }
}
