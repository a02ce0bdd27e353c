//! Reads with the broker's own credential on behalf of clients: namespaces of their tenants, and
//! cluster-scoped resources that a Tenant lets them list.
//!
//! RBAC allows a list of all objects of a kind or of none, so the API server is asked as the broker,
//! with a label selector. Nothing else is sent with this credential on behalf of a client:
//! [`BrokerRead`] builds path and query, and [`BrokerReader`] builds the request from nothing. A
//! client chooses how objects are represented, and parameters that can only narrow the selection.
//!
//! | file | responsibility |
//! |---|---|
//! | `resource` | the resources |
//! | `selector` | the label selector of a client |
//! | `union` | the label selectors of several tenants as one |
//! | `accept` | the header `Accept` |

mod accept;
mod resource;
mod selector;
#[cfg(test)]
mod tests;
mod union;

use std::{borrow::Cow, collections::BTreeSet, convert::Infallible, net::IpAddr, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, Response, header};
use http_body_util::{BodyExt as _, Empty};
use kube::{Config, config::AuthInfo};
use secrecy::ExposeSecret as _;
use tenant_shared::{HOME_LABEL, TENANT_LABEL};
use url::form_urlencoded;

pub use resource::{BrokerReadResource, ClusterList, UnknownClusterList};
pub use selector::SelectorError;
pub use union::RequiredLabels;

use super::{
    Cluster, ConnectError, Transport, Upstream, UpstreamError, UpstreamRequestBody,
    UpstreamResponseBody,
};
use tenant_shared::is_dns_label;

const LABEL_SELECTOR: &str = "labelSelector";
/// The parameters of a list or watch that a client chooses, besides its label selector. They can
/// only narrow the selection, divide it into pages, or change its form.
const PASSED: [&str; 9] = [
    "fieldSelector",
    "limit",
    "continue",
    "resourceVersion",
    "resourceVersionMatch",
    "allowWatchBookmarks",
    "timeoutSeconds",
    "sendInitialEvents",
    "includeObject",
];
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// A list or watch of some objects of a resource. The API server applies the selector of each
/// request, so a `continue` token of another selection shows nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerRead {
    resource: BrokerReadResource,
    path_and_query: String,
    is_watch: bool,
}

/// A read that is not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BrokerReadError {
    /// There is no tenant whose namespaces could be selected.
    #[error("there is no tenant to list namespaces of")]
    NoTenant,
    /// No node selector says which nodes are shown.
    #[error("no tenant selects nodes to list")]
    NoSelector,
    /// A node selector cannot be written as a label selector.
    #[error("a tenant selects nodes by {0:?}, which is no label")]
    NoLabel(String),
    /// No label selector selects the nodes of all tenants.
    #[error(
        "your tenants select nodes by different labels, which one list cannot join; name the labels \
         of one of them with -l: {}",
        .0.join(" or ")
    )]
    NoUnion(Vec<String>),
    /// The label selector of the client cannot be parsed.
    #[error("unable to parse the labelSelector: {0}")]
    Selector(#[from] SelectorError),
}

/// The client on whose behalf a read is sent.
#[derive(Clone, Copy, Debug)]
pub struct ReadClient<'a> {
    /// Its header `Accept`.
    pub accept: Option<&'a HeaderValue>,
    /// Identifier of its request, for the audit log of the API server.
    pub request_id: &'a str,
    /// Its address, for the same log.
    pub address: Option<IpAddr>,
}

impl BrokerRead {
    /// The read of the namespaces of these tenants without their homes, with the parameters of a
    /// client's query.
    ///
    /// # Errors
    /// There is no tenant, or the client's label selector cannot be parsed.
    pub fn namespaces<'a>(
        tenants: impl IntoIterator<Item = &'a str>,
        client_query: &str,
        is_watch: bool,
    ) -> Result<Self, BrokerReadError> {
        // Other texts are no names of tenants. The check keeps them from changing the selector.
        let tenants: Vec<&str> = tenants.into_iter().filter(|name| is_dns_label(name)).collect();
        if tenants.is_empty() {
            // The API server would read `in ()` as a selection of the empty value.
            return Err(BrokerReadError::NoTenant);
        }
        let scope =
            vec![format!("{TENANT_LABEL} in ({})", tenants.join(",")), format!("!{HOME_LABEL}")];
        let client = client_requirements(client_query)?;
        Ok(Self::new(BrokerReadResource::Namespaces, scope, client, client_query, is_watch))
    }

    /// The read of a cluster-scoped resource, with the parameters of a client's query. Of nodes it
    /// shows those that one of the selectors selects; of other resources it shows all objects.
    ///
    /// # Errors
    /// The client's label selector cannot be parsed; nodes have no selector, or their selectors
    /// cannot be joined.
    pub fn cluster_list(
        list: ClusterList,
        node_selectors: &BTreeSet<RequiredLabels>,
        client_query: &str,
        is_watch: bool,
    ) -> Result<Self, BrokerReadError> {
        let client = client_requirements(client_query)?;
        let scope = match list {
            ClusterList::Nodes => union::union(node_selectors, &client)?,
            ClusterList::StorageClasses
            | ClusterList::IngressClasses
            | ClusterList::PriorityClasses
            | ClusterList::RuntimeClasses => Vec::new(),
        };
        Ok(Self::new(BrokerReadResource::ClusterList(list), scope, client, client_query, is_watch))
    }

    fn new(
        resource: BrokerReadResource,
        scope: Vec<String>,
        client: Vec<String>,
        client_query: &str,
        is_watch: bool,
    ) -> Self {
        let requirements = [scope, client].concat();
        let mut query = form_urlencoded::Serializer::new(String::new());
        if !requirements.is_empty() {
            query.append_pair(LABEL_SELECTOR, &requirements.join(","));
        }
        if is_watch {
            query.append_pair("watch", "true");
        }
        for name in PASSED {
            if let Some(value) = parameter(client_query, name) {
                query.append_pair(name, &value);
            }
        }
        let path_and_query = format!("{}?{}", resource.path(), query.finish());
        Self { resource, path_and_query, is_watch }
    }

    /// The resource that is read.
    pub fn resource(&self) -> BrokerReadResource {
        self.resource
    }
}

/// The first value of a parameter, which is the one that the API server uses.
fn parameter<'a>(query: &'a str, name: &str) -> Option<Cow<'a, str>> {
    let mut parameters = form_urlencoded::parse(query.as_bytes());
    parameters.find(|(key, _)| key == name).map(|(_, value)| value)
}

/// The requirements of the client's own label selector.
fn client_requirements(query: &str) -> Result<Vec<String>, SelectorError> {
    parameter(query, LABEL_SELECTOR).map_or_else(|| Ok(Vec::new()), |it| selector::parse(&it))
}

/// Sends reads with the broker's own credential.
pub(super) struct BrokerReader {
    /// Its connections carry the broker's client certificate, if the credential is one. So it sends
    /// nothing but reads.
    upstream: Upstream,
    authorization: Option<HeaderValue>,
}

impl BrokerReader {
    /// Prepares the connections with the identity of this configuration.
    ///
    /// # Errors
    /// The certificate or the token cannot be used.
    pub(super) fn new(config: &Config) -> Result<Self, ConnectError> {
        Ok(Self {
            upstream: Upstream::with_identity(config)?,
            authorization: authorization(&config.auth_info)?,
        })
    }

    /// The complete request of a read.
    fn request(
        &self,
        read: &BrokerRead,
        client: ReadClient<'_>,
    ) -> Result<Request<UpstreamRequestBody>, UpstreamError> {
        let body = Empty::<Bytes>::new().map_err(|never: Infallible| match never {}).boxed();
        let mut request = Request::new(body);
        *request.method_mut() = Method::GET;
        *request.uri_mut() = self.upstream.uri(&read.path_and_query)?;
        let address = client.address.map(|address| address.to_string());
        let text = |text: &str| HeaderValue::from_str(text).ok();
        let headers = [
            (header::AUTHORIZATION, self.authorization.clone()),
            (header::ACCEPT, client.accept.and_then(accept::accepted)),
            (AUDIT_ID, text(client.request_id)),
            (X_FORWARDED_FOR, address.as_deref().and_then(text)),
        ];
        for (name, value) in headers {
            if let Some(value) = value {
                request.headers_mut().insert(name, value);
            }
        }
        Ok(request)
    }
}

/// The header with the token or password of an identity. As in client-go, a token takes precedence.
fn authorization(identity: &AuthInfo) -> Result<Option<HeaderValue>, ConnectError> {
    let text = match (&identity.token, &identity.username, &identity.password) {
        (Some(token), ..) => format!("Bearer {}", token.expose_secret()),
        (None, Some(name), Some(password)) => {
            let pair = format!("{name}:{}", password.expose_secret());
            format!("Basic {}", STANDARD.encode(pair))
        }
        _ => return Ok(None),
    };
    let mut header = HeaderValue::from_str(&text).map_err(|_| ConnectError::Token)?;
    header.set_sensitive(true);
    Ok(Some(header))
}

impl Cluster {
    /// Sends a read with the broker's own credential, and returns the response as soon as its head
    /// is read. A watch may be silent for as long as its client stays.
    ///
    /// # Errors
    /// The API server does not respond.
    pub async fn read_as_broker(
        &self,
        read: &BrokerRead,
        client: ReadClient<'_>,
    ) -> Result<Response<UpstreamResponseBody>, UpstreamError> {
        let reader = Arc::clone(&self.connections.get().broker_reader);
        let transport = if read.is_watch { Transport::Http2 } else { Transport::Http1 };
        reader.upstream.send(reader.request(read, client)?, transport).await
    }
}
