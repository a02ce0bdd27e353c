//! Somebody proved who they are: what waited for it is answered.

use poem::{Response, http::header};
use uuid::Uuid;

use super::{
    Issuer, authorization, begin, pages,
    redirect::RedirectUri,
    target::{ReturnTo, Target},
    waiting::{Waiting, over},
};
use crate::{
    audit::{self, Action, Event},
    db::Tx,
    page::see_other,
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
    /// What a provider gave for it, if it was at a provider.
    pub(super) grant_id: Option<Uuid>,
}

impl Waiting {
    /// Answers what waited for this person.
    ///
    /// # Errors
    /// The database's; then nobody was signed in.
    pub(super) async fn accept(&self, issuer: &Issuer, who: &SignedIn) -> sqlx::Result<Response> {
        let accepted = match &self.target {
            Target::Client(redirect) => self.give_code(issuer, who, redirect).await?,
            Target::Device(_) => self.ask_to_confirm(issuer, who).await?,
            Target::Browser(place) => self.give_session(issuer, who, place).await?,
        };
        Ok(accepted.unwrap_or_else(over))
    }

    /// The client gets a code.
    async fn give_code(
        &self,
        issuer: &Issuer,
        who: &SignedIn,
        redirect: &RedirectUri,
    ) -> sqlx::Result<Option<Response>> {
        let Ok(code) = PlainSecret::generate(CODE_PREFIX) else {
            return Ok(Some(pages::broken("the operating system gave no randomness")));
        };
        let seconds = if redirect.is_code_page() { PASTED_CODE_SECONDS } else { CODE_SECONDS };
        let expires_at = issuer.clock().now_ms() + i64::from(seconds) * 1000;
        let mut tx = issuer.db().begin().await?;
        if !self.approve(issuer, &mut tx, who, Some((code.hash(), expires_at))).await? {
            return Ok(None);
        }
        tx.commit().await?;
        signed_in(issuer, who);
        let mut answer = vec![("code", code.expose())];
        answer.extend(self.pending.state.as_deref().map(|state| ("state", state)));
        answer.push(("iss", issuer.name()));
        Ok(Some(self.done(redirect.answer(&answer))))
    }

    /// The person is shown what waits, and decides. The browser keeps its cookie until then.
    async fn ask_to_confirm(
        &self,
        issuer: &Issuer,
        who: &SignedIn,
    ) -> sqlx::Result<Option<Response>> {
        let mut tx = issuer.db().begin().await?;
        if !self.approve(issuer, &mut tx, who, None).await? {
            return Ok(None);
        }
        tx.commit().await?;
        signed_in(issuer, who);
        Ok(Some(see_other(&format!("/login/device?request={}", self.handle))))
    }

    /// The browser itself gets a session: a new one with a new secret, whatever it had before.
    async fn give_session(
        &self,
        issuer: &Issuer,
        who: &SignedIn,
        place: &ReturnTo,
    ) -> sqlx::Result<Option<Response>> {
        let now = issuer.clock().now_ms();
        let mut tx = issuer.db().begin().await?;
        if !self.approve(issuer, &mut tx, who, None).await? {
            return Ok(None);
        }
        let Some(row) = authorization::redeem_id(&mut tx, self.pending.id, now).await? else {
            return Ok(None);
        };
        let Some(session) = begin::session(issuer, &mut tx, &row, now).await? else {
            return Ok(None);
        };
        let Some(cookie) = begin::cookie(issuer, &mut tx, &session, now).await? else {
            return Ok(Some(pages::broken("the operating system gave no randomness")));
        };
        tx.commit().await?;
        signed_in(issuer, who);
        let mut response = self.done(see_other(place.as_str()));
        response.headers_mut().append(header::SET_COOKIE, cookie);
        Ok(Some(response))
    }

    /// Puts the sign-in on record. `false` if nothing waits for it any more.
    async fn approve(
        &self,
        issuer: &Issuer,
        tx: &mut Tx,
        who: &SignedIn,
        code: Option<(crate::secret::SecretHash, i64)>,
    ) -> sqlx::Result<bool> {
        let now = issuer.clock().now_ms();
        if !authorization::approve(tx, self.pending.id, (who.user_id, who.grant_id), now, code)
            .await?
        {
            return Ok(false);
        }
        let event = Event {
            user_id: Some(who.user_id),
            reason: Some(format!("for {}, by {}", self.pending.client_id, who.how)),
            ..Event::success(Action::SignIn)
        };
        audit::record(tx, issuer.clock(), event).await?;
        Ok(true)
    }

    /// The answer takes the request's cookie back.
    pub(super) fn done(&self, mut response: Response) -> Response {
        if let Some(cookie) = self.cookie.clear() {
            response.headers_mut().append(header::SET_COOKIE, cookie);
        }
        response
    }
}

fn signed_in(issuer: &Issuer, who: &SignedIn) {
    issuer.metrics().action(Action::SignIn, "success");
    note("user_id", who.user_id);
}
