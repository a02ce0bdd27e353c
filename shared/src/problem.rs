//! Problem details: the format of every error response (RFC 9457).

use serde::{Deserialize, Serialize};

/// Media type of [`Problem`] (RFC 9457 section 3).
pub const PROBLEM_CONTENT_TYPE: &str = "application/problem+json";

/// Machine-readable error code. The set only grows; a client treats an unknown code as
/// [`Code::Unknown`] and relies on the HTTP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// 400: the request is malformed; the detail says where.
    InvalidRequest,
    /// 400: the tier is not one of the broker's tiers.
    UnknownTier,
    /// 401: there is no valid session; sign in.
    Unauthenticated,
    /// 403: the user is signed in, but not allowed to do this.
    Forbidden,
    /// 403: the token is valid for the gateway only; the broker's API needs the access token of a
    /// sign-in.
    InsufficientScope,
    /// 403: the request comes from a page of an origin that the broker does not trust.
    ForeignOrigin,
    /// 403: the user may see the tenant, but only its owners may do this.
    NotTenantOwner,
    /// 403: the tenant has as many namespaces as it may have.
    NamespaceQuotaExceeded,
    /// 404: the resource does not exist, or this user may not know of it.
    NotFound,
    /// 405: the path exists, the method does not.
    MethodNotAllowed,
    /// 409: the workspace exists with another tier.
    TierConflict,
    /// 409: an object in the cluster has the required name and does not belong to the broker.
    NamespaceConflict,
    /// 409: a namespace of this name exists.
    NamespaceExists,
    /// 409: the namespace may not be moved into the tenant.
    NamespaceMoveRefused,
    /// 409: the workspace is suspended.
    WorkspaceSuspended,
    /// 409: the owner of the workspace is suspended.
    OwnerSuspended,
    /// 409: the tenant is suspended, or is being deleted.
    TenantNotActive,
    /// 409: a Tenant of this name exists.
    TenantExists,
    /// 409: the Tenant has namespaces, so it is not deleted.
    TenantNotEmpty,
    /// 409: the Tenant is not the one that the request names, or was changed meanwhile.
    TenantChanged,
    /// 409: another field manager of the cluster, such as a GitOps tool, has set a field that the
    /// request would change.
    FieldConflict,
    /// 409: the workspace is not in a state that allows this yet; retry.
    WorkspaceNotReady,
    /// 409: another user has the e-mail address.
    EmailTaken,
    /// 409: the user signs in at a provider, which decides on this.
    ProviderDecides,
    /// 411: the request has no `Content-Length`.
    LengthRequired,
    /// 413: the body is larger than the operation accepts.
    PayloadTooLarge,
    /// 415: the body has a media type that the operation does not accept.
    UnsupportedMediaType,
    /// 429: there were too many requests; `Retry-After` says when to retry.
    RateLimited,
    /// 500: a fault of the broker; the request id finds it in the broker's log.
    Internal,
    /// 502: the cluster issued a token with too long a lifetime, which the broker dropped.
    TokenLifetimeRefused,
    /// 502: the cluster refused a request of the broker; an operator has to act.
    ClusterRefused,
    /// 503: the cluster does not respond; `Retry-After` says when to retry.
    ClusterUnavailable,
    /// 503: the database does not respond, so nothing may be issued; `Retry-After` says when to
    /// retry.
    StorageUnavailable,
    /// A code of a newer broker.
    #[serde(other)]
    Unknown,
}

impl Code {
    /// Name of the code on the wire, for example `not_found`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidRequest => "invalid_request",
            Self::UnknownTier => "unknown_tier",
            Self::Unauthenticated => "unauthenticated",
            Self::Forbidden => "forbidden",
            Self::InsufficientScope => "insufficient_scope",
            Self::ForeignOrigin => "foreign_origin",
            Self::NotTenantOwner => "not_tenant_owner",
            Self::NamespaceQuotaExceeded => "namespace_quota_exceeded",
            Self::NotFound => "not_found",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::TierConflict => "tier_conflict",
            Self::NamespaceConflict => "namespace_conflict",
            Self::NamespaceExists => "namespace_exists",
            Self::NamespaceMoveRefused => "namespace_move_refused",
            Self::WorkspaceSuspended => "workspace_suspended",
            Self::OwnerSuspended => "owner_suspended",
            Self::TenantNotActive => "tenant_not_active",
            Self::TenantExists => "tenant_exists",
            Self::TenantNotEmpty => "tenant_not_empty",
            Self::TenantChanged => "tenant_changed",
            Self::FieldConflict => "field_conflict",
            Self::WorkspaceNotReady => "workspace_not_ready",
            Self::EmailTaken => "email_taken",
            Self::ProviderDecides => "provider_decides",
            Self::LengthRequired => "length_required",
            Self::PayloadTooLarge => "payload_too_large",
            Self::UnsupportedMediaType => "unsupported_media_type",
            Self::RateLimited => "rate_limited",
            Self::Internal => "internal",
            Self::TokenLifetimeRefused => "token_lifetime_refused",
            Self::ClusterRefused => "cluster_refused",
            Self::ClusterUnavailable => "cluster_unavailable",
            Self::StorageUnavailable => "storage_unavailable",
            Self::Unknown => "unknown",
        }
    }

    /// HTTP status of the code.
    pub fn status(self) -> u16 {
        match self {
            Self::InvalidRequest | Self::UnknownTier => 400,
            Self::Unauthenticated => 401,
            Self::Forbidden
            | Self::InsufficientScope
            | Self::ForeignOrigin
            | Self::NotTenantOwner
            | Self::NamespaceQuotaExceeded => 403,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::TierConflict
            | Self::NamespaceConflict
            | Self::NamespaceExists
            | Self::NamespaceMoveRefused
            | Self::WorkspaceSuspended
            | Self::OwnerSuspended
            | Self::TenantNotActive
            | Self::TenantExists
            | Self::TenantNotEmpty
            | Self::TenantChanged
            | Self::FieldConflict
            | Self::WorkspaceNotReady
            | Self::EmailTaken
            | Self::ProviderDecides => 409,
            Self::LengthRequired => 411,
            Self::PayloadTooLarge => 413,
            Self::UnsupportedMediaType => 415,
            Self::RateLimited => 429,
            Self::Internal | Self::Unknown => 500,
            Self::TokenLifetimeRefused | Self::ClusterRefused => 502,
            Self::ClusterUnavailable | Self::StorageUnavailable => 503,
        }
    }

    /// Short text that is the same for every occurrence of the code (RFC 9457 section 3.1.3).
    pub fn title(self) -> &'static str {
        match self {
            Self::InvalidRequest => "Invalid request",
            Self::UnknownTier => "Unknown tier",
            Self::Unauthenticated => "Sign in first",
            Self::Forbidden => "Not allowed",
            Self::InsufficientScope => "The token is for the gateway only",
            Self::ForeignOrigin => "Foreign origin",
            Self::NotTenantOwner => "Only an owner of the tenant may do that",
            Self::NamespaceQuotaExceeded => "The tenant has as many namespaces as it may have",
            Self::NotFound => "Not found",
            Self::MethodNotAllowed => "Method not allowed",
            Self::TierConflict => "The workspace has another tier",
            Self::NamespaceConflict => "Conflicting object in the cluster",
            Self::NamespaceExists => "The namespace exists already",
            Self::NamespaceMoveRefused => "The namespace may not be moved",
            Self::WorkspaceSuspended => "The workspace is suspended",
            Self::OwnerSuspended => "The owner of the workspace is suspended",
            Self::TenantNotActive => "The tenant is not active",
            Self::TenantExists => "The Tenant exists already",
            Self::TenantNotEmpty => "The Tenant has namespaces",
            Self::TenantChanged => "The Tenant was changed",
            Self::FieldConflict => "Another field manager has set the field",
            Self::WorkspaceNotReady => "The workspace is not ready",
            Self::EmailTaken => "Another user has the e-mail address",
            Self::ProviderDecides => "The sign-in provider decides on this",
            Self::LengthRequired => "Length required",
            Self::PayloadTooLarge => "Body too large",
            Self::UnsupportedMediaType => "Unsupported media type",
            Self::RateLimited => "Too many requests",
            Self::Internal | Self::Unknown => "Internal error",
            Self::TokenLifetimeRefused => "The cluster issued a token that lives too long",
            Self::ClusterRefused => "The cluster refused",
            Self::ClusterUnavailable => "The cluster does not answer",
            Self::StorageUnavailable => "The database does not answer",
        }
    }
}

/// Problem details (RFC 9457) with the extension members `code` and `request_id`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
#[cfg_attr(feature = "openapi", oai(skip_serializing_if_is_none))]
pub struct Problem {
    /// URI reference of the problem type: `about:blank`, because the code identifies the problem.
    #[serde(rename = "type", default = "about_blank")]
    #[cfg_attr(feature = "openapi", oai(rename = "type"))]
    pub kind: String,
    /// Short text that is the same for every occurrence of the code.
    pub title: String,
    /// HTTP status code.
    pub status: u16,
    /// Stable, machine-readable name of the error, in snake case.
    pub code: String,
    /// Cause and remedy, as text for people.
    pub detail: String,
    /// Request id, which finds the request in the broker's log and audit trail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

fn about_blank() -> String {
    "about:blank".to_owned()
}

impl Problem {
    /// Creates a problem of this code, with a text for people.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self {
            kind: about_blank(),
            title: code.title().to_owned(),
            status: code.status(),
            code: code.as_str().to_owned(),
            detail: detail.into(),
            request_id: None,
        }
    }

    /// Parses the code; [`Code::Unknown`] if this version does not know it.
    pub fn code(&self) -> Code {
        serde_json::from_value(serde_json::Value::String(self.code.clone()))
            .unwrap_or(Code::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_written_as_serde_writes_it() {
        for code in [
            Code::InvalidRequest,
            Code::NotTenantOwner,
            Code::NamespaceQuotaExceeded,
            Code::NamespaceExists,
            Code::NamespaceMoveRefused,
            Code::TenantNotActive,
            Code::TenantExists,
            Code::TenantNotEmpty,
            Code::TenantChanged,
            Code::FieldConflict,
            Code::TokenLifetimeRefused,
            Code::StorageUnavailable,
        ] {
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
            assert_eq!(Problem::new(code, "x").code(), code);
        }
    }

    #[test]
    fn a_code_of_a_newer_broker_is_unknown() {
        let problem: Problem = serde_json::from_str(
            r#"{"title":"t","status":418,"code":"teapot","detail":"d","later":1}"#,
        )
        .unwrap();
        assert_eq!(problem.code(), Code::Unknown);
    }
}
