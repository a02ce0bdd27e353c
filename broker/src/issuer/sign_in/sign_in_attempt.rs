//! Sign-in attempts with a password, within the rate limits.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use poem::Request;
use secrecy::SecretString;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::trusted_browser;
use crate::{
    audit::{self, Action, Event},
    base::{
        request_context,
        secret::PlainSecret,
        throttle::{self, RateLimit, RateLimited, WindowQuota},
    },
    identity::{PasswordCheck, PasswordError, PasswordSlot},
    issuer::Issuer,
};

/// The same text for every failed sign-in, because it must not say what was wrong.
pub(in crate::issuer) const WRONG: &str = "The e-mail address or the password is wrong.";

/// Result of a sign-in attempt.
#[derive(Debug)]
pub(in crate::issuer) enum AttemptResult {
    /// The password is correct, for this user.
    Accepted(Uuid),
    /// The attempt failed; the client must not learn why.
    Wrong,
    /// Too many attempts failed before; the password was not checked.
    TooMany(RateLimited),
    /// The password could not be checked.
    Unchecked(PasswordError),
}

/// One attempt to sign in.
#[derive(Clone)]
pub(in crate::issuer) struct SignInAttempt {
    issuer: Issuer,
    email: String,
    browser: Option<PlainSecret>,
    limits: Vec<(RateLimit, String, WindowQuota)>,
}

impl SignInAttempt {
    /// An attempt of this browser to sign in to the account with this address.
    ///
    /// # Errors
    /// The database failed.
    pub(in crate::issuer) async fn new(
        issuer: &Issuer,
        request: &Request,
        email: &str,
    ) -> sqlx::Result<Self> {
        let (browser, mut trusted) = (trusted_browser::read_cookie(issuer, request), None);
        if let Some(secret) = &browser {
            let now = issuer.clock().now_ms();
            if trusted_browser::is_trusted(issuer.db(), secret.hash(), &normalize(email), now)
                .await?
            {
                trusted = Some(secret);
            }
        }
        let limits = limits(issuer, email, trusted);
        Ok(Self { issuer: issuer.clone(), email: email.to_owned(), browser, limits })
    }

    /// Checks the e-mail address and this password.
    ///
    /// # Errors
    /// The database failed; then the result is unknown.
    pub(in crate::issuer) async fn check_password(
        &self,
        password: SecretString,
    ) -> sqlx::Result<AttemptResult> {
        if let Err(limit) = self.peek_limits().await? {
            return Ok(AttemptResult::TooMany(limit));
        }
        let slot = match self.issuer.identity().acquire_password_slot().await {
            Ok(slot) => slot,
            Err(error) => return Ok(AttemptResult::Unchecked(error)),
        };
        let attempt = self.clone();
        // In a task of its own, so that a failure counts even if the client hangs up before the
        // response.
        let check = request_context::in_request_context(async move {
            attempt.check_password_in(slot, password).await
        });
        match tokio::spawn(check).await {
            Ok(result) => result,
            Err(error) => Ok(AttemptResult::Unchecked(PasswordError::Failed(format!(
                "the check ended: {error}"
            )))),
        }
    }

    /// Checks the limits again and counts a failure, both while it holds the slot. So concurrent
    /// attempts compute no more passwords than the limits and the number of slots allow.
    async fn check_password_in(
        &self,
        slot: PasswordSlot,
        password: SecretString,
    ) -> sqlx::Result<AttemptResult> {
        if let Err(limit) = self.peek_limits().await? {
            return Ok(AttemptResult::TooMany(limit));
        }
        let identity = self.issuer.identity();
        let result = match identity.check_password(&slot, &self.email, password).await? {
            Ok(result) => result,
            Err(error) => return Ok(AttemptResult::Unchecked(error)),
        };
        match result {
            PasswordCheck::Refused { user_id, reason } => {
                self.count_failure(user_id, reason).await?;
                Ok(AttemptResult::Wrong)
            }
            // The limits are checked again: of many concurrent attempts, all of which passed the
            // first check, the correct one counts only if the failed ones have not reached the
            // limit since.
            PasswordCheck::Accepted(user_id) => Ok(match self.peek_limits().await? {
                Ok(()) => AttemptResult::Accepted(user_id),
                Err(limit) => AttemptResult::TooMany(limit),
            }),
        }
    }

    /// Makes the browser trusted for this user; returns the cookie to set.
    ///
    /// # Errors
    /// The database failed.
    pub(in crate::issuer) async fn trust_browser(
        &self,
        user_id: Uuid,
    ) -> sqlx::Result<Option<poem::http::HeaderValue>> {
        trusted_browser::trust(&self.issuer, self.browser.as_ref(), user_id).await
    }

    /// Checks, without counting, whether another failure would be within the limits.
    async fn peek_limits(&self) -> sqlx::Result<Result<(), RateLimited>> {
        let (db, clock) = (self.issuer.db(), self.issuer.clock());
        for (limited, subject, allowance) in &self.limits {
            let peeked = throttle::peek(db, clock, *limited, subject, *allowance).await?;
            if peeked.is_err() {
                return Ok(peeked);
            }
        }
        Ok(Ok(()))
    }

    async fn count_failure(&self, user_id: Option<Uuid>, reason: &'static str) -> sqlx::Result<()> {
        let (issuer, clock) = (&self.issuer, self.issuer.clock());
        let mut tx = issuer.db().begin().await?;
        for (limited, subject, allowance) in &self.limits {
            // Whether this failure reaches the limit matters only for the next attempt.
            let _ = throttle::consume(&mut tx, clock, *limited, subject, *allowance).await?;
        }
        // The account is the subject and not the actor, because the client did not authenticate.
        let event = Event { subject_user_id: user_id, ..Event::refused(Action::SignIn, reason) };
        audit::record(&mut tx, clock, event).await?;
        tx.commit().await?;
        issuer.metrics().action(Action::SignIn.as_str(), "refused");
        Ok(())
    }
}

/// The limits that an attempt counts for. A trusted browser has a limit of its own, so that others'
/// failures do not lock it out. All other attempts count for the address, for the account at this
/// address, and, with a wider limit, for the account from everywhere, so that an attacker gains
/// nothing by using many addresses.
fn limits(
    issuer: &Issuer,
    email: &str,
    trusted: Option<&PlainSecret>,
) -> Vec<(RateLimit, String, WindowQuota)> {
    let (settings, account) = (issuer.settings(), account(email));
    if let Some(browser) = trusted {
        let browser = URL_SAFE_NO_PAD.encode(browser.hash().as_bytes());
        let subject = format!("{account} {browser}");
        return vec![(RateLimit::SignInKnownBrowser, subject, settings.sign_in_account)];
    }
    let address = throttle::client_key();
    vec![
        (RateLimit::SignInAccount, format!("{account} {address}"), settings.sign_in_account),
        (RateLimit::SignInAddress, address, settings.sign_in_address),
        (RateLimit::SignInEverywhere, account, settings.sign_in_everywhere),
    ]
}

fn normalize(email: &str) -> String {
    email.trim_matches(' ').to_ascii_lowercase()
}

/// Key of an account in the limits: a hash, because people type passwords into the wrong field.
fn account(email: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(normalize(email).as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_key_is_normalized_and_unreadable() {
        assert_eq!(account(" Ada@Example.com "), account("ada@example.com"));
        assert_ne!(account("ada@example.com"), account("bob@example.com"));
        assert!(!account("ada@example.com").contains("ada"));
    }
}
