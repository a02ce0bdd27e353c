//! The request to the API server.

pub(super) mod headers;

use http::{Extensions, HeaderMap, HeaderName, HeaderValue, header};
use hyper::upgrade::OnUpgrade;
use tenant_shared::Code;

use self::headers::UpgradeProtocol;
use crate::{base::request_context::RequestInfo, http::ApiError, identity::PresentedCredential};

const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// The request to the API server.
#[derive(Debug)]
pub(super) struct UpstreamRequest {
    /// The filtered headers.
    pub(super) headers: HeaderMap,
    /// The connection of the client, if it asks for an upgrade.
    pub(super) upgrade: Option<Upgrade>,
    /// Whether a browser sent the request.
    pub(super) is_browser: bool,
}

/// An upgrade that the client asks for.
#[derive(Debug)]
pub(super) struct Upgrade {
    /// The requested protocol.
    pub(super) protocol: UpgradeProtocol,
    /// The client's connection; `None` with HTTP/2, which has no upgrades.
    pub(super) client: Option<OnUpgrade>,
}

impl UpstreamRequest {
    /// Builds the request from the client's headers, which it takes.
    ///
    /// # Errors
    /// A WebSocket with a cookie has no `Origin` header.
    pub(super) fn from_client(
        client_headers: &mut HeaderMap,
        extensions: &mut Extensions,
        presented: &PresentedCredential,
        info: &RequestInfo,
    ) -> Result<Self, ApiError> {
        let upgrade = headers::requested_upgrade(client_headers);
        if presented.is_cookie()
            && upgrade.is_some()
            && !client_headers.contains_key(header::ORIGIN)
        {
            let text = "a WebSocket with a cookie needs the header Origin; browsers send it";
            return Err(ApiError::new(Code::ForeignOrigin, text));
        }
        let is_browser = presented.is_cookie()
            || client_headers.contains_key("sec-fetch-site")
            || client_headers.contains_key(header::ORIGIN);
        let mut headers = std::mem::take(client_headers);
        headers::to_upstream(&mut headers);
        set_audit_headers(&mut headers, info);
        let upgrade = upgrade.map(|protocol| {
            headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
            headers.insert(header::UPGRADE, protocol.header());
            Upgrade { protocol, client: extensions.remove::<OnUpgrade>() }
        });
        Ok(Self { headers, upgrade, is_browser })
    }
}

/// Sets the headers by which the audit log of the API server names the request and its client.
pub(crate) fn set_audit_headers(headers: &mut HeaderMap, info: &RequestInfo) {
    if let Ok(id) = HeaderValue::from_str(&info.id) {
        headers.insert(AUDIT_ID, id);
    }
    // The API server's audit log then has the client's address next to the broker's.
    if let Some(address) = info.address
        && let Ok(address) = HeaderValue::from_str(&address.to_string())
    {
        headers.insert(X_FORWARDED_FOR, address);
    }
}
