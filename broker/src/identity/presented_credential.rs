//! The credential that a request presents.

use http::{HeaderMap, header};

use crate::base::secret::{PlainSecret, SecretHash};

/// The credential that a request presents, not yet verified. Its secret is not printed.
#[derive(Clone, Debug)]
pub(crate) enum PresentedCredential {
    /// The bearer token of the header `Authorization`.
    AccessToken(PlainSecret),
    /// A browser's session cookie; the origin of the request is checked.
    Cookie(PlainSecret),
}

impl PresentedCredential {
    /// Hash of the secret, for use as a cache key.
    pub(crate) fn hash(&self) -> SecretHash {
        match self {
            Self::AccessToken(secret) | Self::Cookie(secret) => secret.hash(),
        }
    }

    /// Whether it is a cookie, which a browser sends by itself.
    pub(crate) fn is_cookie(&self) -> bool {
        matches!(self, Self::Cookie(_))
    }
}

/// The bearer token of a request; empty if the header has another scheme.
pub(super) fn access_token(headers: &HeaderMap) -> Option<PlainSecret> {
    let value = headers.get(header::AUTHORIZATION)?;
    let token = value
        .to_str()
        .ok()
        .and_then(|value| value.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, token)| token.trim());
    Some(PlainSecret::presented(token.unwrap_or_default()))
}
