//! Checks of sessions at their provider: every refresh of a session that began at a provider asks
//! the provider again.
//!
//! A denial ends the session. An outage is bridged for `outage_seconds` after the last answer; then
//! the refresh is refused, and the session waits for the provider. No transaction is open during a
//! request to the provider.
//!
//! A provider that rotates its refresh tokens takes the second use of one for theft. So a check
//! holds a lease in the database; another refresh of the same session, on any replica, waits for it
//! and uses its result.

use std::{sync::Arc, time::Duration};

use secrecy::SecretString;
use uuid::Uuid;

use super::{
    CHECK_TTL_SECONDS, Connector, ProviderError,
    claim_mapping::{MappedUser, NotAllowed},
    grant::{self, SessionGrant},
};
use crate::{
    audit::{self, Action, Event},
    base::{
        db::Tx,
        error_chain,
        request_context::{self, Field, record_field},
        secret::SecretHash,
    },
    identity::{AdmittedUser, sessions},
    issuer::{Issuer, tokens::token_error::TokenError},
};

/// Timeout of a check: metadata, keys, tokens and userinfo.
const PROVIDER_TIMEOUT: Duration = Duration::from_secs(15);
/// Lifetime of a lease: longer than a check, so that it expires only if its holder died.
pub(super) const LEASE_MS: i64 = 30 * 1000;
/// How long a refresh waits for the check of another refresh.
const LEASE_WAIT_TIMEOUT: Duration = Duration::from_secs(20);
/// How often a waiting refresh looks at the lease.
const LEASE_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Result of a check.
enum ProviderVerdict {
    /// The user may continue, with these claims.
    Active(MappedUser),
    /// The user may continue; the provider sent no claims.
    Unchanged,
    /// The provider or the claims deny it; the text says why.
    Denied(String),
    /// The provider gave no usable answer; the text says why.
    Unknown(String),
}

/// Asks the provider about the user of this refresh token, if their session began at one and the
/// last check is not recent. Does nothing for other tokens.
///
/// # Errors
/// The session has ended, or has to wait for the provider, or the database does not answer.
pub(in crate::issuer) async fn check_before_refresh(
    issuer: &Issuer,
    token: SecretHash,
) -> Result<(), TokenError> {
    let deadline = tokio::time::Instant::now() + LEASE_WAIT_TIMEOUT;
    loop {
        let now = issuer.clock().now_ms();
        let Some(mut grant) = grant::find_by_refresh_token(issuer.db(), token, now).await? else {
            return Ok(());
        };
        // There is no refresh token of the provider, or the last check is recent. Without a token
        // the session soon expires.
        if grant.refresh_token.is_none() || now - grant.checked_at < CHECK_TTL_SECONDS * 1000 {
            return Ok(());
        }
        let lease = issuer.clock().random_id();
        if grant::acquire_lease(issuer.db(), &mut grant, lease, now, now + LEASE_MS).await? {
            // In a task of its own: a client that disconnects must not cancel the check between
            // receiving the provider's new refresh token and storing it.
            let asking = request_context::in_request_context(refresh_with_lease(
                issuer.clone(),
                grant,
                lease,
            ));
            return match tokio::spawn(asking).await {
                Ok(done) => done,
                Err(_) => Err(TokenError::Provider),
            };
        }
        if tokio::time::Instant::now() >= deadline {
            return Err(TokenError::Provider);
        }
        tokio::time::sleep(LEASE_POLL_INTERVAL).await;
    }
}

/// Asks the provider while it holds this lease, and stores the result.
///
/// # Errors
/// See [`check_before_refresh`].
pub(super) async fn refresh_with_lease(
    issuer: Issuer,
    grant: SessionGrant,
    lease: Uuid,
) -> Result<(), TokenError> {
    let Some(connector) = issuer.connectors().get(&grant.connector).map(Arc::clone) else {
        let why = "the provider is not configured any more".to_owned();
        return store_verdict(&issuer, &grant, lease, None, ProviderVerdict::Denied(why), 0).await;
    };
    let sealed = grant.refresh_token.as_deref().unwrap_or_default();
    let Some(token) = issuer.keys().sealing_keys().open(sealed, grant.id.as_bytes()) else {
        let why = "the provider's token cannot be opened (issuer.signing_key_files)".to_owned();
        return store_verdict(&issuer, &grant, lease, None, ProviderVerdict::Denied(why), 0).await;
    };
    let (rotated, verdict) = refresh_at_provider(&connector, &token, &grant.subject).await;
    let outage = i64::from(connector.settings.outage_seconds) * 1000;
    store_verdict(&issuer, &grant, lease, rotated, verdict, outage).await
}

/// Asks the provider; returns the rotated refresh token, if there is one, and the verdict.
async fn refresh_at_provider(
    connector: &Connector,
    token: &SecretString,
    subject: &str,
) -> (Option<SecretString>, ProviderVerdict) {
    let asked =
        tokio::time::timeout(PROVIDER_TIMEOUT, connector.provider.refresh(token, subject)).await;
    let refreshed = match asked {
        Ok(Ok(refreshed)) => refreshed,
        Ok(Err(error)) => return (None, verdict_of_error(error)),
        Err(_) => return (None, ProviderVerdict::Unknown("no answer in time".to_owned())),
    };
    let verdict = match refreshed.claims {
        Ok(from_provider) => evaluate_claims(connector, from_provider.claims.as_ref()),
        Err(error) => verdict_of_error(error),
    };
    (refreshed.token, verdict)
}

fn evaluate_claims(
    connector: &Connector,
    claims: Option<&serde_json::Map<String, serde_json::Value>>,
) -> ProviderVerdict {
    match claims.map(|claims| connector.settings.map_claims(claims)) {
        Some(Ok(mapped)) => ProviderVerdict::Active(mapped),
        Some(Err(not_allowed)) => {
            ProviderVerdict::Denied(NotAllowed::reason(not_allowed).to_owned())
        }
        // Without claims it is not known whether the user may continue.
        None if connector.settings.requires_claims() => {
            ProviderVerdict::Unknown("it gives no claims (no ID token, no userinfo)".to_owned())
        }
        None => ProviderVerdict::Unchanged,
    }
}

/// An invalid response says nothing about the user.
fn verdict_of_error(error: ProviderError) -> ProviderVerdict {
    match error {
        ProviderError::Denied(why) => {
            ProviderVerdict::Denied(format!("the provider refused: {why}"))
        }
        error => ProviderVerdict::Unknown(error.to_string()),
    }
}

/// Stores the result of a check, in one transaction with its audit rows.
async fn store_verdict(
    issuer: &Issuer,
    grant: &SessionGrant,
    lease: Uuid,
    rotated: Option<SecretString>,
    verdict: ProviderVerdict,
    outage_ms: i64,
) -> Result<(), TokenError> {
    let now = issuer.clock().now_ms();
    let rotated =
        rotated.map(|token| issuer.keys().sealing_keys().seal(&token, grant.id.as_bytes()));
    let rotated = rotated.transpose().map_err(|error| {
        record_field(Field::Cause, error_chain(&error));
        TokenError::Provider
    })?;
    let checked_at = match &verdict {
        ProviderVerdict::Unknown(_) => grant.checked_at,
        _ => now,
    };
    let mut tx = issuer.db().begin().await?;
    // The lease expired and another check took it over.
    if !grant::release_lease(&mut tx, grant.id, lease, rotated, checked_at).await? {
        return Err(TokenError::Provider);
    }
    let done = match verdict {
        ProviderVerdict::Active(mapped) => {
            let user = AdmittedUser { user_id: grant.user_id, identity_id: grant.identity_id };
            let (identity, claims) = (issuer.identity(), mapped.claims());
            identity.apply_claims(&mut tx, user, &claims, &grant.connector).await?;
            mapped.warn_of_groups_left_out(&grant.connector, grant.user_id);
            Ok(())
        }
        ProviderVerdict::Unchanged => Ok(()),
        ProviderVerdict::Denied(why) => {
            end_session(issuer, &mut tx, grant, &why).await?;
            Err(TokenError::Grant("the sign-in provider ended this session; sign in again"))
        }
        ProviderVerdict::Unknown(cause) => {
            tracing::warn!(connector = %grant.connector, error = cause, "refresh at the sign-in provider failed");
            record_field(Field::Cause, cause);
            if now - grant.checked_at <= outage_ms { Ok(()) } else { Err(TokenError::Provider) }
        }
    };
    tx.commit().await?;
    done
}

/// Ends a session because its provider says so.
pub(super) async fn end_session(
    issuer: &Issuer,
    tx: &mut Tx,
    grant: &SessionGrant,
    why: &str,
) -> sqlx::Result<bool> {
    let now = issuer.clock().now_ms();
    let Some(user_id) = sessions::end(tx, grant.session_id, now, why).await? else {
        return Ok(false);
    };
    let event = Event {
        reason: Some(format!("{}: {why}", grant.connector)),
        ..Event::success(Action::ProviderLogout)
    }
    .to_user(user_id)
    .to_session(grant.session_id);
    audit::record(tx, issuer.clock(), event).await?;
    issuer.metrics().action(Action::ProviderLogout.as_str(), "success");
    Ok(true)
}
