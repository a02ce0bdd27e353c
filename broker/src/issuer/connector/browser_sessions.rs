//! Checks of browser sessions: they have no refresh, so a sweep asks the provider about them as
//! often as a program refreshes, if the browser was used since. After an outage longer than
//! `outage_seconds` the session ends, because there is no refresh that could wait for the provider.

use tokio::task::JoinSet;

use super::{
    check,
    grant::{self, SessionGrant},
};
use crate::{
    base::error_chain,
    issuer::{Issuer, tokens::token_error::TokenError},
};

/// Maximum sessions of one round; the next round continues with the rest.
const MAX_BATCH: u32 = 200;
/// Maximum concurrent requests to providers.
const MAX_CONCURRENT: usize = 8;

/// Checks every browser session that is due. Several replicas may do so concurrently; a lease
/// ensures that one of them checks a session.
///
/// # Errors
/// The database failed; the next round continues.
pub(in crate::issuer) async fn check(issuer: &Issuer) -> sqlx::Result<()> {
    let now = issuer.clock().now_ms();
    let due = now - i64::from(issuer.settings().access_token_seconds) * 1000;
    let mut checks = JoinSet::new();
    for grant in grant::due_browser_grants(issuer.db(), now, due, MAX_BATCH).await? {
        if checks.len() >= MAX_CONCURRENT {
            checks.join_next().await;
        }
        let issuer = issuer.clone();
        checks.spawn(async move {
            if let Err(error) = check_one(&issuer, grant).await {
                let error = error_chain(&error);
                tracing::error!(error, "checking a browser session failed");
            }
        });
    }
    checks.join_all().await;
    Ok(())
}

async fn check_one(issuer: &Issuer, mut grant: SessionGrant) -> sqlx::Result<()> {
    let (now, lease) = (issuer.clock().now_ms(), issuer.clock().random_id());
    let until = now + check::LEASE_MS;
    if !grant::acquire_lease(issuer.db(), &mut grant, lease, now, until).await? {
        return Ok(());
    }
    match check::refresh_with_lease(issuer.clone(), grant.clone(), lease).await {
        Err(TokenError::Storage(error)) => Err(error),
        // The provider did not answer, and the outage may have lasted too long.
        Err(TokenError::Provider) if is_outage_too_long(issuer, &grant, now) => {
            let mut tx = issuer.db().begin().await?;
            let why = "the provider has not answered for too long";
            check::end_session(issuer, &mut tx, &grant, why).await?;
            tx.commit().await
        }
        // The session continues, or the check has ended it.
        _ => Ok(()),
    }
}

fn is_outage_too_long(issuer: &Issuer, grant: &SessionGrant, now: i64) -> bool {
    let outage = issuer.connectors().get(&grant.connector).map(|c| c.settings.outage_seconds);
    now - grant.checked_at > i64::from(outage.unwrap_or(0)) * 1000
}
