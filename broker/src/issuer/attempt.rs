//! One try to sign in with a password, within the limits.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use poem::Request;
use secrecy::SecretString;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::{Issuer, known};
use crate::{
    audit::{self, Action, Event},
    identity::{PasswordError, PasswordSlot, SignIn},
    problem,
    secret::PlainSecret,
    throttle::{self, Allowance, Limited, TooMany},
};

/// The one text for every wrong sign-in: it must not say what was wrong.
pub(super) const WRONG: &str = "The e-mail address or the password is wrong.";

/// What came of a try.
#[derive(Debug)]
pub(super) enum Verdict {
    /// It is this user.
    Accepted(Uuid),
    /// It is not; whoever tried must not learn why.
    Wrong,
    /// Too many tries failed before; the password was not even looked at.
    TooMany(TooMany),
    /// The password could not be checked.
    Unchecked(PasswordError),
}

/// One try to sign in.
#[derive(Clone)]
pub(super) struct Attempt {
    issuer: Issuer,
    email: String,
    browser: Option<PlainSecret>,
    limits: Vec<(Limited, String, Allowance)>,
}

impl Attempt {
    /// A try of this browser as the account with this address.
    ///
    /// # Errors
    /// The database's.
    pub(super) async fn new(issuer: &Issuer, request: &Request, email: &str) -> sqlx::Result<Self> {
        let (browser, mut known) = (known::presented(issuer, request), None);
        if let Some(secret) = &browser {
            let now = issuer.clock().now_ms();
            if known::is_known(issuer.db(), secret.hash(), &normal(email), now).await? {
                known = Some(secret);
            }
        }
        let limits = limits(issuer, email, known);
        Ok(Self { issuer: issuer.clone(), email: email.to_owned(), browser, limits })
    }

    /// Judges an e-mail address and this password.
    ///
    /// # Errors
    /// The database's; then nothing is known.
    pub(super) async fn judge(&self, password: SecretString) -> sqlx::Result<Verdict> {
        if let Err(limit) = self.look().await? {
            return Ok(Verdict::TooMany(limit));
        }
        let slot = match self.issuer.identity().password_slot().await {
            Ok(slot) => slot,
            Err(error) => return Ok(Verdict::Unchecked(error)),
        };
        let attempt = self.clone();
        // In a task of its own: a failure is counted also if the client hangs up before the answer.
        let judged = problem::detached(async move { attempt.judge_in(slot, password).await });
        match tokio::spawn(judged).await {
            Ok(verdict) => verdict,
            Err(error) => {
                Ok(Verdict::Unchecked(PasswordError::Failed(format!("the check ended: {error}"))))
            }
        }
    }

    /// Looks at the limits again and counts a failure, both while the slot is taken. So of any number
    /// of tries at once no more are computed than the limits allow and there are slots.
    async fn judge_in(&self, slot: PasswordSlot, password: SecretString) -> sqlx::Result<Verdict> {
        if let Err(limit) = self.look().await? {
            return Ok(Verdict::TooMany(limit));
        }
        let identity = self.issuer.identity();
        let verdict = match identity.check_password(&slot, &self.email, password).await? {
            Ok(verdict) => verdict,
            Err(error) => return Ok(Verdict::Unchecked(error)),
        };
        match verdict {
            SignIn::Refused { user_id, why } => {
                self.count_failure(user_id, why).await?;
                Ok(Verdict::Wrong)
            }
            // Looked at again: of many tries at once, all of which found the limit unreached, the
            // right one counts only if the wrong ones have not reached it meanwhile.
            SignIn::Accepted(user) => Ok(match self.look().await? {
                Ok(()) => Verdict::Accepted(user.id),
                Err(limit) => Verdict::TooMany(limit),
            }),
        }
    }

    /// The browser is known from now on; gives the cookie to hand it.
    ///
    /// # Errors
    /// The database's.
    pub(super) async fn remember(
        &self,
        user_id: Uuid,
    ) -> sqlx::Result<Option<poem::http::HeaderValue>> {
        known::remember(&self.issuer, self.browser.as_ref(), user_id).await
    }

    /// Whether another failure would be within the limits.
    async fn look(&self) -> sqlx::Result<Result<(), TooMany>> {
        let (db, clock) = (self.issuer.db(), self.issuer.clock());
        for (limited, subject, allowance) in &self.limits {
            let looked = throttle::look(db, clock, *limited, subject, *allowance).await?;
            if looked.is_err() {
                return Ok(looked);
            }
        }
        Ok(Ok(()))
    }

    async fn count_failure(&self, user_id: Option<Uuid>, why: &'static str) -> sqlx::Result<()> {
        let (issuer, clock) = (&self.issuer, self.issuer.clock());
        let mut tx = issuer.db().begin().await?;
        for (limited, subject, allowance) in &self.limits {
            // Whether this one was the last allowed concerns the next try.
            let _ = throttle::take(&mut tx, clock, *limited, subject, *allowance).await?;
        }
        // Whoever tried did not show that they are that person.
        let event = Event { subject_user_id: user_id, ..Event::refused(Action::SignIn, why) };
        audit::record(&mut tx, clock, event).await?;
        tx.commit().await?;
        issuer.metrics().action(Action::SignIn, "refused");
        Ok(())
    }
}

/// A browser that the account used before is counted on its own, so that others' tries do not lock
/// it out. All others count for the address, for the account at this address, and, with a wider
/// limit, for the account from everywhere: guessing must not pay with many addresses either.
fn limits(
    issuer: &Issuer,
    email: &str,
    known: Option<&PlainSecret>,
) -> Vec<(Limited, String, Allowance)> {
    let (settings, account) = (issuer.settings(), account(email));
    if let Some(browser) = known {
        let browser = URL_SAFE_NO_PAD.encode(browser.hash().as_bytes());
        let subject = format!("{account} {browser}");
        return vec![(Limited::SignInKnownBrowser, subject, settings.sign_in_account)];
    }
    let address = throttle::requester();
    vec![
        (Limited::SignInAccount, format!("{account} {address}"), settings.sign_in_account),
        (Limited::SignInAddress, address, settings.sign_in_address),
        (Limited::SignInEverywhere, account, settings.sign_in_everywhere),
    ]
}

fn normal(email: &str) -> String {
    email.trim_matches(' ').to_ascii_lowercase()
}

/// An account as the limits know it: a hash, for people type passwords into the wrong field.
fn account(email: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(normal(email).as_bytes()))
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
}
