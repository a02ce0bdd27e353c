//! One try to sign in with a password, within the limits.

use std::net::IpAddr;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use poem::{Response, http::StatusCode};
use secrecy::SecretString;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::{Issuer, accept::SignedIn, pages, waiting::Waiting};
use crate::{
    audit::{self, Action, Event},
    identity::{PasswordError, SignIn},
    problem::{self, note},
    throttle::{self, Limited, TooMany},
};

/// The one text for every wrong sign-in: it must not say what was wrong.
const WRONG: &str = "The e-mail address or the password is wrong.";

/// One try to sign in.
pub(super) struct Attempt<'a> {
    pub(super) issuer: &'a Issuer,
    pub(super) waiting: &'a Waiting,
    pub(super) email: &'a str,
}

impl Attempt<'_> {
    /// The answer to an e-mail address and this password.
    ///
    /// # Errors
    /// The database's; then nobody was signed in.
    pub(super) async fn judge(&self, password: SecretString) -> sqlx::Result<Response> {
        if let Err(limit) = self.look().await? {
            return Ok(self.too_many(limit));
        }
        let verdict = match self.issuer.identity().check_password(self.email, password).await? {
            Ok(verdict) => verdict,
            Err(error) => return Ok(unchecked(&error)),
        };
        match verdict {
            SignIn::Refused { user_id, why } => self.refuse(user_id, why).await,
            // Looked at again: of many tries at once, all of which found the limit unreached, the
            // right one counts only if the wrong ones have not reached it meanwhile.
            SignIn::Accepted(user) => {
                if let Err(limit) = self.look().await? {
                    return Ok(self.too_many(limit));
                }
                let who = SignedIn { user_id: user.id, how: "password".to_owned() };
                self.waiting.accept(self.issuer, &who).await
            }
        }
    }

    /// Whether another failure would be within the limits.
    async fn look(&self) -> sqlx::Result<Result<(), TooMany>> {
        let (db, clock) = (self.issuer.db(), self.issuer.clock());
        for (limited, subject, allowance) in self.limits() {
            let looked = throttle::look(db, clock, limited, &subject, allowance).await?;
            if looked.is_err() {
                return Ok(looked);
            }
        }
        Ok(Ok(()))
    }

    fn limits(&self) -> [(Limited, String, throttle::Allowance); 2] {
        let settings = self.issuer.settings();
        [
            (Limited::SignInAccount, account(self.email), settings.sign_in_account),
            (Limited::SignInAddress, address(problem::request_address()), settings.sign_in_address),
        ]
    }

    fn too_many(&self, limit: TooMany) -> Response {
        let minutes = limit.retry_after.div_ceil(60);
        let minutes = if minutes == 1 { "a minute".into() } else { format!("{minutes} minutes") };
        let text = format!("Too many attempts. Try again in {minutes}.");
        let page = self.waiting.form(StatusCode::TOO_MANY_REQUESTS, self.email, Some(&text));
        pages::later(page, limit.retry_after)
    }

    /// Counts the failure and records it; the page does not say what was wrong.
    async fn refuse(&self, user_id: Option<Uuid>, why: &'static str) -> sqlx::Result<Response> {
        let (issuer, clock) = (self.issuer, self.issuer.clock());
        let mut tx = issuer.db().begin().await?;
        for (limited, subject, allowance) in self.limits() {
            // Whether this one was the last allowed concerns the next try.
            let _ = throttle::take(&mut tx, clock, limited, &subject, allowance).await?;
        }
        let event = Event { user_id, ..Event::refused(Action::SignIn, why) };
        audit::record(&mut tx, clock, event).await?;
        tx.commit().await?;
        issuer.metrics().action(Action::SignIn, "refused");
        Ok(self.waiting.form(StatusCode::UNAUTHORIZED, self.email, Some(WRONG)))
    }
}

fn unchecked(error: &PasswordError) -> Response {
    note("cause", problem::chain(error));
    match error {
        PasswordError::Busy => pages::try_again("Many people sign in just now", "", 10),
        PasswordError::Length | PasswordError::Failed(_) => {
            pages::broken("the password could not be checked")
        }
    }
}

/// An account as the limits know it: a hash, for people type passwords into the wrong field.
fn account(email: &str) -> String {
    let email = email.trim_matches(' ').to_ascii_lowercase();
    URL_SAFE_NO_PAD.encode(Sha256::digest(email.as_bytes()))
}

/// An address as the limits know it. One IPv6 subscriber has a whole /64.
fn address(address: Option<IpAddr>) -> String {
    match address.map(|address| address.to_canonical()) {
        Some(IpAddr::V4(address)) => address.to_string(),
        Some(IpAddr::V6(address)) => {
            let [a, b, c, d, ..] = address.segments();
            format!("{a:x}:{b:x}:{c:x}:{d:x}::/64")
        }
        None => "unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_the_same_however_it_is_typed_and_is_not_readable() {
        assert_eq!(account(" Ada@Example.com "), account("ada@example.com"));
        assert_ne!(account("ada@example.com"), account("bob@example.com"));
        assert!(!account("ada@example.com").contains("ada"));
    }

    #[test]
    fn a_subscriber_is_one_address() {
        let of = |text: &str| address(Some(text.parse().unwrap()));
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::9"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
    }
}
