//! The one shape of every failure: RFC 9457 problem details.

use serde::{Deserialize, Serialize};

/// Media type of [`Problem`] (RFC 9457 section 3).
pub const PROBLEM_CONTENT_TYPE: &str = "application/problem+json";

/// Why a request failed, for programs. The set only grows; a client takes a code that it does not
/// know as [`Code::Unknown`] and goes by the HTTP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// 400: the request cannot be understood; the detail says where.
    InvalidRequest,
    /// 400: the tier is not one of the broker's tiers.
    UnknownTier,
    /// 401: no valid session; sign in.
    Unauthenticated,
    /// 403: signed in, but not allowed.
    Forbidden,
    /// 403: the token is for the gateway only; the broker's API takes that of a sign-in.
    InsufficientScope,
    /// 403: a page of an origin that the broker does not trust made the browser send this.
    ForeignOrigin,
    /// 404: no such thing, or none that this person may know of.
    NotFound,
    /// 405: the path exists, the method does not.
    MethodNotAllowed,
    /// 409: the workspace exists with another tier.
    TierConflict,
    /// 409: an object in the cluster is in the way and is not ours.
    NamespaceConflict,
    /// 409: the workspace is suspended.
    WorkspaceSuspended,
    /// 409: the owner of the workspace is suspended.
    OwnerSuspended,
    /// 409: the workspace is not in a state that allows this yet; try again.
    WorkspaceNotReady,
    /// 409: another user has the e-mail address.
    EmailTaken,
    /// 411: the length of the body must be given.
    LengthRequired,
    /// 413: the body is larger than the operation takes.
    PayloadTooLarge,
    /// 415: the body is not of the type that the operation takes.
    UnsupportedMediaType,
    /// 429: too often; `Retry-After` says when to come back.
    RateLimited,
    /// 500: a fault of the broker; the request id finds it in the broker's log.
    Internal,
    /// 502: the cluster issued a token that would live too long, and it was dropped.
    TokenLifetimeRefused,
    /// 502: the cluster refused what the broker asked; an operator has to look.
    ClusterRefused,
    /// 503: the cluster does not answer; `Retry-After` says when to come back.
    ClusterUnavailable,
    /// 503: the database does not answer, so nothing may leave; `Retry-After` says when.
    StorageUnavailable,
    /// A code of a newer broker.
    #[serde(other)]
    Unknown,
}

impl Code {
    /// The code as it is written on the wire, for example `not_found`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidRequest => "invalid_request",
            Self::UnknownTier => "unknown_tier",
            Self::Unauthenticated => "unauthenticated",
            Self::Forbidden => "forbidden",
            Self::InsufficientScope => "insufficient_scope",
            Self::ForeignOrigin => "foreign_origin",
            Self::NotFound => "not_found",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::TierConflict => "tier_conflict",
            Self::NamespaceConflict => "namespace_conflict",
            Self::WorkspaceSuspended => "workspace_suspended",
            Self::OwnerSuspended => "owner_suspended",
            Self::WorkspaceNotReady => "workspace_not_ready",
            Self::EmailTaken => "email_taken",
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

    /// The HTTP status that goes with the code.
    pub fn status(self) -> u16 {
        match self {
            Self::InvalidRequest | Self::UnknownTier => 400,
            Self::Unauthenticated => 401,
            Self::Forbidden | Self::InsufficientScope | Self::ForeignOrigin => 403,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::TierConflict
            | Self::NamespaceConflict
            | Self::WorkspaceSuspended
            | Self::OwnerSuspended
            | Self::WorkspaceNotReady
            | Self::EmailTaken => 409,
            Self::LengthRequired => 411,
            Self::PayloadTooLarge => 413,
            Self::UnsupportedMediaType => 415,
            Self::RateLimited => 429,
            Self::Internal | Self::Unknown => 500,
            Self::TokenLifetimeRefused | Self::ClusterRefused => 502,
            Self::ClusterUnavailable | Self::StorageUnavailable => 503,
        }
    }

    /// A short text that is the same for every occurrence (RFC 9457 section 3.1.3).
    pub fn title(self) -> &'static str {
        match self {
            Self::InvalidRequest => "Invalid request",
            Self::UnknownTier => "Unknown tier",
            Self::Unauthenticated => "Sign in first",
            Self::Forbidden => "Not allowed",
            Self::InsufficientScope => "The token is for the gateway only",
            Self::ForeignOrigin => "Sent by a page of another origin",
            Self::NotFound => "Not found",
            Self::MethodNotAllowed => "Method not allowed",
            Self::TierConflict => "The workspace has another tier",
            Self::NamespaceConflict => "Something in the cluster is in the way",
            Self::WorkspaceSuspended => "The workspace is suspended",
            Self::OwnerSuspended => "The owner of the workspace is suspended",
            Self::WorkspaceNotReady => "The workspace is not ready",
            Self::EmailTaken => "Another user has the e-mail address",
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

/// Problem details (RFC 9457) with this API's two extension members, `code` and `request_id`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(poem_openapi::Object))]
#[cfg_attr(feature = "openapi", oai(skip_serializing_if_is_none))]
pub struct Problem {
    /// URI reference of the kind of problem: `about:blank`, the code says more.
    #[serde(rename = "type", default = "about_blank")]
    #[cfg_attr(feature = "openapi", oai(rename = "type"))]
    pub kind: String,
    /// Short text, the same for every occurrence of the code.
    pub title: String,
    /// HTTP status code.
    pub status: u16,
    /// Stable name of the failure, snake case, for programs.
    pub code: String,
    /// What failed and what to do about it, for people.
    pub detail: String,
    /// Finds the request in the broker's log and audit trail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

fn about_blank() -> String {
    "about:blank".to_owned()
}

impl Problem {
    /// A problem of this code with a text for people.
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

    /// The code, [`Code::Unknown`] if this version does not know it.
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
        for code in [Code::InvalidRequest, Code::TokenLifetimeRefused, Code::StorageUnavailable] {
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
