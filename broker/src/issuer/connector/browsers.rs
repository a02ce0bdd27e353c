//! A browser's session has no refresh, so a sweep asks the provider about it: as often as a program
//! refreshes, if the browser was used since. After an outage that is bridged no longer the session
//! ends, for there is no refresh that could wait for the provider.

use tokio::task::JoinSet;

use super::{
    check,
    grant::{self, Kept},
};
use crate::{
    issuer::{Issuer, token::TokenError},
    problem,
};

/// Sessions of one round; the next round goes on with the rest.
const MOST: u32 = 200;
/// Providers are asked about so many at once.
const MOST_AT_ONCE: usize = 8;

/// Asks about every browser's session that is due. Several replicas may do it at once; each session
/// is asked about by one.
///
/// # Errors
/// The database's; the next round goes on.
pub(in crate::issuer) async fn check(issuer: &Issuer) -> sqlx::Result<()> {
    let now = issuer.clock().now_ms();
    let due = now - i64::from(issuer.settings().access_token_seconds) * 1000;
    let mut asking = JoinSet::new();
    for kept in grant::of_browsers(issuer.db(), now, due, MOST).await? {
        if asking.len() >= MOST_AT_ONCE {
            asking.join_next().await;
        }
        let issuer = issuer.clone();
        asking.spawn(async move {
            if let Err(error) = check_one(&issuer, kept).await {
                let error = problem::chain(&error);
                tracing::error!(error, "a browser's session could not be checked");
            }
        });
    }
    asking.join_all().await;
    Ok(())
}

async fn check_one(issuer: &Issuer, mut kept: Kept) -> sqlx::Result<()> {
    let (now, lease) = (issuer.clock().now_ms(), issuer.clock().random_id());
    let until = now + check::LEASE_MS;
    if !grant::lease(issuer.db(), &mut kept, lease, now, until).await? {
        return Ok(());
    }
    match check::ask(issuer.clone(), kept.clone(), lease).await {
        Err(TokenError::Storage(error)) => Err(error),
        // The provider did not answer; perhaps for longer than is bridged.
        Err(TokenError::Provider) if is_past_bridge(issuer, &kept, now) => {
            let mut tx = issuer.db().begin().await?;
            let why = "the provider has not answered for too long";
            check::end(issuer, &mut tx, &kept, why).await?;
            tx.commit().await
        }
        // It goes on, or it is ended.
        _ => Ok(()),
    }
}

fn is_past_bridge(issuer: &Issuer, kept: &Kept, now: i64) -> bool {
    let outage = issuer.connectors().get(&kept.connector).map(|c| c.settings.outage_seconds);
    now - kept.checked_at > i64::from(outage.unwrap_or(0)) * 1000
}
