//! `POST /auth/logout`

use poem_openapi::{ApiResponse, OpenApi};

use crate::{
    http::{ApiError, Authenticated},
    identity::SessionSelector,
    issuer::Issuer,
};

/// `signOut`.
#[derive(Debug)]
pub struct SignOut {
    pub(super) issuer: Issuer,
}

/// The session is over.
#[derive(ApiResponse)]
pub(crate) enum SignedOut {
    /// The session has ended, and the cookie is removed.
    #[oai(status = 204)]
    Done(#[oai(header = "Set-Cookie")] Option<String>),
}

#[OpenApi(prefix_path = "/auth")]
impl SignOut {
    /// Sign out
    ///
    /// Ends the session that this request used and removes its cookie.
    #[oai(path = "/logout", method = "post", operation_id = "signOut")]
    async fn sign_out(&self, caller: Authenticated) -> Result<SignedOut, ApiError> {
        let identity = self.issuer.identity();
        let (caller, session_id) = (&caller.0, caller.0.session_id());
        identity.end_own_sessions(caller, SessionSelector::One(session_id)).await?;
        let cookie = identity.browser_sessions().cookie.clear();
        Ok(SignedOut::Done(cookie.and_then(|value| value.to_str().ok().map(ToOwned::to_owned))))
    }
}
