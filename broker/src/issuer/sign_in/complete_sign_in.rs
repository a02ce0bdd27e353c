//! Completion of a sign-in: the authenticated user gets a code, a confirmation page or a browser
//! session.

use poem::{Response, http::header};
use uuid::Uuid;

use super::session_start;
use crate::{
    audit::{self, Action, Event},
    base::{
        db::Tx,
        request_context::{Field, record_field},
        secret::{PlainSecret, SecretHash},
    },
    http::page::see_other,
    issuer::{
        Issuer,
        authorization::{
            self,
            pending_authorization::{PendingAuthorization, expired_page},
        },
        pages,
        redirect::{RedirectUri, ReturnTarget, ReturnTo},
    },
};

/// Prefix of every authorization code.
pub(in crate::issuer) const CODE_PREFIX: &str = "tbc_";
/// Lifetime of a code that a program receives, in seconds (RFC 9700 section 2.1.1: short).
const CODE_SECONDS: u32 = 60;
/// Lifetime of a code that a person pastes into a terminal, in seconds.
pub(in crate::issuer) const PASTED_CODE_SECONDS: u32 = 300;

/// A user who has authenticated.
#[derive(Debug)]
pub(in crate::issuer) struct SignedIn {
    pub(in crate::issuer) user_id: Uuid,
    /// Sign-in method, for the audit trail.
    pub(in crate::issuer) method: String,
    /// The upstream provider's grant, if the user signed in at a provider.
    pub(in crate::issuer) grant_id: Option<Uuid>,
}

impl PendingAuthorization {
    /// Completes the authorization for this user, according to its [`ReturnTarget`].
    ///
    /// # Errors
    /// The database failed; then nobody was signed in.
    pub(in crate::issuer) async fn complete_sign_in(
        &self,
        issuer: &Issuer,
        who: &SignedIn,
    ) -> sqlx::Result<Response> {
        let response = match &self.target {
            ReturnTarget::Client(redirect) => self.issue_code(issuer, who, redirect).await?,
            ReturnTarget::Device(_) => self.redirect_to_confirmation(issuer, who).await?,
            ReturnTarget::Browser(return_to) => {
                self.start_browser_session(issuer, who, return_to).await?
            }
        };
        Ok(response.unwrap_or_else(expired_page))
    }

    /// Redirects to the client with an authorization code.
    async fn issue_code(
        &self,
        issuer: &Issuer,
        who: &SignedIn,
        redirect: &RedirectUri,
    ) -> sqlx::Result<Option<Response>> {
        let Ok(code) = PlainSecret::generate(CODE_PREFIX) else {
            return Ok(Some(pages::internal_error("the operating system gave no randomness")));
        };
        let seconds = if redirect.is_code_page() { PASTED_CODE_SECONDS } else { CODE_SECONDS };
        let expires_at = issuer.clock().now_ms() + i64::from(seconds) * 1000;
        let mut tx = issuer.db().begin().await?;
        if !self.record_approval(issuer, &mut tx, who, Some((code.hash(), expires_at))).await? {
            return Ok(None);
        }
        tx.commit().await?;
        count_sign_in(issuer, who);
        let mut parameters = vec![("code", code.expose())];
        parameters.extend(self.row.state.as_deref().map(|state| ("state", state)));
        parameters.push(("iss", issuer.name()));
        Ok(Some(self.clear_cookie(redirect.redirect_with(&parameters))))
    }

    /// Redirects to the page on which the user allows or denies the device. The browser keeps its
    /// cookie until then.
    async fn redirect_to_confirmation(
        &self,
        issuer: &Issuer,
        who: &SignedIn,
    ) -> sqlx::Result<Option<Response>> {
        let mut tx = issuer.db().begin().await?;
        if !self.record_approval(issuer, &mut tx, who, None).await? {
            return Ok(None);
        }
        tx.commit().await?;
        count_sign_in(issuer, who);
        Ok(Some(see_other(&format!("/login/device?request={}", self.handle))))
    }

    /// Starts a session of the browser itself, always a new one with a new secret (against session
    /// fixation).
    async fn start_browser_session(
        &self,
        issuer: &Issuer,
        who: &SignedIn,
        return_to: &ReturnTo,
    ) -> sqlx::Result<Option<Response>> {
        let now = issuer.clock().now_ms();
        let mut tx = issuer.db().begin().await?;
        if !self.record_approval(issuer, &mut tx, who, None).await? {
            return Ok(None);
        }
        let Some(row) = authorization::redeem_by_id(&mut tx, self.row.id, now).await? else {
            return Ok(None);
        };
        let Some(session) = session_start::from_authorization(issuer, &mut tx, &row, now).await?
        else {
            return Ok(None);
        };
        let Some(cookie) = session_start::issue_cookie(issuer, &mut tx, &session, now).await?
        else {
            return Ok(Some(pages::internal_error("the operating system gave no randomness")));
        };
        tx.commit().await?;
        count_sign_in(issuer, who);
        let mut response = self.clear_cookie(see_other(return_to.as_str()));
        response.headers_mut().append(header::SET_COOKIE, cookie);
        Ok(Some(response))
    }

    /// Approves the authorization and records the sign-in in the audit trail. `false` if the
    /// authorization is not pending any more.
    async fn record_approval(
        &self,
        issuer: &Issuer,
        tx: &mut Tx,
        who: &SignedIn,
        code: Option<(SecretHash, i64)>,
    ) -> sqlx::Result<bool> {
        let now = issuer.clock().now_ms();
        if !authorization::approve(tx, self.row.id, (who.user_id, who.grant_id), now, code).await? {
            return Ok(false);
        }
        let event = Event {
            user_id: Some(who.user_id),
            reason: Some(format!("for {}, by {}", self.row.client_id, who.method)),
            ..Event::success(Action::SignIn)
        };
        audit::record(tx, issuer.clock(), event).await?;
        Ok(true)
    }

    /// Adds the `Set-Cookie` header that removes the authorization's cookie.
    pub(in crate::issuer) fn clear_cookie(&self, mut response: Response) -> Response {
        if let Some(cookie) = self.cookie.clear() {
            response.headers_mut().append(header::SET_COOKIE, cookie);
        }
        response
    }
}

fn count_sign_in(issuer: &Issuer, who: &SignedIn) {
    issuer.metrics().action(Action::SignIn.as_str(), "success");
    record_field(Field::UserId, who.user_id);
}
