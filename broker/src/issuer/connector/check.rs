//! At every refresh of a session that began at a provider, the provider is asked again.
//!
//! A definite no ends the session. An outage is bridged for `outage_seconds` after the last answer;
//! then the refresh is refused, and the session waits for the provider. While the provider is asked
//! no transaction is open.
//!
//! A provider that replaces its refresh tokens takes the second use of one for theft. So whoever
//! asks holds a lease in the database; another refresh of the same session, on whichever replica,
//! waits and takes over what comes of it.

use std::{sync::Arc, time::Duration};

use secrecy::SecretString;
use uuid::Uuid;

use super::{
    Connector, NoAnswer, RECENT_SECONDS,
    grant::{self, Kept},
    person::{Described, NotAllowed},
};
use crate::{
    audit::{self, Action, Event},
    db::Tx,
    identity::{provider, session},
    issuer::{Issuer, token::TokenError},
    problem::{self, note},
    secret::SecretHash,
};

/// How long one conversation with a provider may take: metadata, keys, tokens and userinfo.
const ASK: Duration = Duration::from_secs(15);
/// How long a lease holds: longer than a conversation, so that it ends only if its holder died.
pub(super) const LEASE_MS: i64 = 30 * 1000;
/// How long a refresh waits for another one that asks.
const WAIT: Duration = Duration::from_secs(20);
/// How often it looks.
const LOOK: Duration = Duration::from_millis(50);

/// What came of asking.
enum Verdict {
    /// The person is still who they were and may go on.
    Yes(Described),
    /// They may go on, and nothing more was said.
    Unchanged,
    /// They may not.
    No(String),
    /// Nobody knows.
    Unknown(String),
}

/// Asks the provider about the person of this refresh token, if their session began at one and it
/// has not been asked just now. Nothing happens for other tokens.
///
/// # Errors
/// The session is over, or has to wait for the provider, or the database does not answer.
pub(in crate::issuer) async fn before_refresh(
    issuer: &Issuer,
    token: SecretHash,
) -> Result<(), TokenError> {
    let deadline = tokio::time::Instant::now() + WAIT;
    loop {
        let now = issuer.clock().now_ms();
        let Some(mut kept) = grant::of_refresh_token(issuer.db(), token, now).await? else {
            return Ok(());
        };
        // Nothing to ask with: the session ends by itself, soon.
        if kept.refresh_token.is_none() || now - kept.checked_at < RECENT_SECONDS * 1000 {
            return Ok(());
        }
        let lease = issuer.clock().random_id();
        if grant::lease(issuer.db(), &mut kept, lease, now, now + LEASE_MS).await? {
            // In a task of its own: a client that hangs up must not cut off the conversation between
            // the provider's new refresh token and our keeping it.
            let asking = problem::detached(ask(issuer.clone(), kept, lease));
            return match tokio::spawn(asking).await {
                Ok(done) => done,
                Err(_) => Err(TokenError::Provider),
            };
        }
        if tokio::time::Instant::now() >= deadline {
            return Err(TokenError::Provider);
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Asks the provider with this lease, and keeps what comes of it.
///
/// # Errors
/// As [`before_refresh`].
pub(super) async fn ask(issuer: Issuer, kept: Kept, lease: Uuid) -> Result<(), TokenError> {
    let Some(connector) = issuer.connectors().get(&kept.connector).map(Arc::clone) else {
        let why = "the provider is not configured any more".to_owned();
        return finish(&issuer, &kept, lease, None, Verdict::No(why), 0).await;
    };
    let sealed = kept.refresh_token.as_deref().unwrap_or_default();
    let Some(token) = issuer.keys().seals().open(sealed, kept.id.as_bytes()) else {
        let why = "the provider's token cannot be opened (issuer.signing_key_files)".to_owned();
        return finish(&issuer, &kept, lease, None, Verdict::No(why), 0).await;
    };
    let (rotated, verdict) = conversation(&connector, &token, &kept.subject).await;
    let outage = i64::from(connector.settings.outage_seconds) * 1000;
    finish(&issuer, &kept, lease, rotated, verdict, outage).await
}

/// Asks the provider; gives the successor of the refresh token, if there is one.
async fn conversation(
    connector: &Connector,
    token: &SecretString,
    subject: &str,
) -> (Option<SecretString>, Verdict) {
    let asked = tokio::time::timeout(ASK, connector.provider.refresh(token, subject)).await;
    let refreshed = match asked {
        Ok(Ok(refreshed)) => refreshed,
        Ok(Err(error)) => return (None, unclear(error)),
        Err(_) => return (None, Verdict::Unknown("no answer in time".to_owned())),
    };
    let verdict = match refreshed.answer {
        Ok(answer) => judge(connector, answer.claims.as_ref()),
        Err(error) => unclear(error),
    };
    (refreshed.token, verdict)
}

fn judge(
    connector: &Connector,
    claims: Option<&serde_json::Map<String, serde_json::Value>>,
) -> Verdict {
    match claims.map(|claims| connector.settings.describe(claims)) {
        Some(Ok(described)) => Verdict::Yes(described),
        Some(Err(not_allowed)) => Verdict::No(NotAllowed::why(not_allowed).to_owned()),
        // What cannot be looked at is not believed to be unchanged.
        None if connector.settings.needs_claims() => {
            Verdict::Unknown("it gives no claims (no ID token, no userinfo)".to_owned())
        }
        None => Verdict::Unchanged,
    }
}

/// An answer that cannot be believed says nothing about the person.
fn unclear(error: NoAnswer) -> Verdict {
    match error {
        NoAnswer::No(why) => Verdict::No(format!("the provider says no: {why}")),
        error => Verdict::Unknown(error.to_string()),
    }
}

/// Keeps what came of asking, in one transaction with its audit rows.
async fn finish(
    issuer: &Issuer,
    kept: &Kept,
    lease: Uuid,
    rotated: Option<SecretString>,
    verdict: Verdict,
    outage_ms: i64,
) -> Result<(), TokenError> {
    let now = issuer.clock().now_ms();
    let rotated = rotated.map(|token| issuer.keys().seals().seal(&token, kept.id.as_bytes()));
    let rotated = rotated.transpose().map_err(|error| {
        note("cause", problem::chain(&error));
        TokenError::Provider
    })?;
    let checked_at = match &verdict {
        Verdict::Unknown(_) => kept.checked_at,
        _ => now,
    };
    let mut tx = issuer.db().begin().await?;
    // A lease that another took over meanwhile means that this one was away for too long.
    if !grant::release(&mut tx, kept.id, lease, rotated, checked_at).await? {
        return Err(TokenError::Provider);
    }
    let done = match verdict {
        Verdict::Yes(described) => {
            let (clock, role) = (issuer.clock(), described.role);
            provider::set_role(&mut tx, clock, kept.user_id, role, &kept.connector).await?;
            Ok(())
        }
        Verdict::Unchanged => Ok(()),
        Verdict::No(why) => {
            end(issuer, &mut tx, kept, &why).await?;
            Err(TokenError::Grant("the sign-in provider ended this session; sign in again"))
        }
        Verdict::Unknown(cause) => {
            tracing::warn!(connector = %kept.connector, cause, "the provider cannot be asked");
            note("cause", cause);
            if now - kept.checked_at <= outage_ms { Ok(()) } else { Err(TokenError::Provider) }
        }
    };
    tx.commit().await?;
    done
}

/// Ends a session because its provider says so.
pub(super) async fn end(
    issuer: &Issuer,
    tx: &mut Tx,
    kept: &Kept,
    why: &str,
) -> sqlx::Result<bool> {
    let now = issuer.clock().now_ms();
    let Some(user_id) = session::end(tx, kept.session_id, now, why).await? else {
        return Ok(false);
    };
    let event = Event {
        reason: Some(format!("{}: {why}", kept.connector)),
        ..Event::success(Action::ProviderLogout)
    }
    .to_user(user_id)
    .to_session(kept.session_id);
    audit::record(tx, issuer.clock(), event).await?;
    issuer.metrics().action(Action::ProviderLogout, "success");
    Ok(true)
}
