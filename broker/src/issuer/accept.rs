//! Somebody proved who they are: the request that waited for it is answered.

use poem::{Response, http::header};
use uuid::Uuid;

use super::{
    Issuer, authorization, pages,
    waiting::{Waiting, over},
};
use crate::{
    audit::{self, Action, Event},
    problem::note,
    secret::PlainSecret,
};

/// What a code begins with.
pub(super) const CODE_PREFIX: &str = "tbc_";
/// How long a code works that a program takes over, in seconds (RFC 9700 section 2.1.1: short).
const CODE_SECONDS: u32 = 60;
/// How long a code works that a person carries to a terminal.
pub(super) const PASTED_CODE_SECONDS: u32 = 300;

/// Somebody who proved who they are.
#[derive(Debug)]
pub(super) struct SignedIn {
    /// The user.
    pub(super) user_id: Uuid,
    /// In which way, for the audit trail.
    pub(super) how: String,
}

impl Waiting {
    /// Answers the request that waited for this person.
    ///
    /// # Errors
    /// The database's; then nobody was signed in.
    pub(super) async fn accept(&self, issuer: &Issuer, who: &SignedIn) -> sqlx::Result<Response> {
        let Ok(code) = PlainSecret::generate(CODE_PREFIX) else {
            return Ok(pages::broken("the operating system gave no randomness"));
        };
        let (pending, now) = (&self.pending, issuer.clock().now_ms());
        let seconds = if self.redirect.is_code_page() { PASTED_CODE_SECONDS } else { CODE_SECONDS };
        let expires_at = now + i64::from(seconds) * 1000;
        let mut tx = issuer.db().begin().await?;
        if !authorization::approve(&mut tx, pending.id, who.user_id, now, code.hash(), expires_at)
            .await?
        {
            return Ok(over());
        }
        let event = Event {
            user_id: Some(who.user_id),
            reason: Some(format!("for {}, by {}", pending.client_id, who.how)),
            ..Event::success(Action::SignIn)
        };
        audit::record(&mut tx, issuer.clock(), event).await?;
        tx.commit().await?;
        issuer.metrics().action(Action::SignIn, "success");
        note("user_id", who.user_id);

        let mut answer = vec![("code", code.expose())];
        answer.extend(pending.state.as_deref().map(|state| ("state", state)));
        answer.push(("iss", issuer.name()));
        let mut response = self.redirect.answer(&answer);
        if let Some(cookie) = self.cookie.clear() {
            response.headers_mut().append(header::SET_COOKIE, cookie);
        }
        Ok(response)
    }
}
