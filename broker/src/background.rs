//! What the broker does by itself, again and again, until it is stopped.

use std::{sync::Arc, time::Duration};

use tokio::task::JoinSet;

use crate::{
    audit,
    audit::chain::Sealer,
    clock::{Clock, ticks},
    config::Config,
    credential::Credentials,
    db::Db,
    issuer::Issuer,
    problem::chain,
    signing::{PrivateKey, PublicKeys},
    tier_role,
    workspace::Workspaces,
};

/// How often old audit rows are looked for.
const RETENTION: Duration = Duration::from_mins(1);

/// Whom it is done for.
#[derive(Debug)]
pub struct Parts {
    /// Whose objects are looked at.
    pub workspaces: Workspaces,
    /// The same, to be finished, on a share of the database that nothing else can use up.
    pub unfinished: Workspaces,
    /// Whose Secrets go, on that share.
    pub credentials: Credentials,
    /// Whose rows go, and whose browsers are checked.
    pub issuer: Issuer,
    /// Seals audit rows.
    pub sealer: Sealer,
    /// Signs where old audit rows are cut.
    pub audit_key: Arc<PrivateKey>,
    /// All keys that signed some.
    pub known_audit_keys: PublicKeys,
    /// Where the audit trail is.
    pub db: Db,
    /// Its time.
    pub clock: Clock,
    /// Looks at the tiers' roles.
    pub tier_roles: tier_role::Watch,
}

/// The loops. They end with the value.
#[derive(Debug)]
pub struct Background {
    loops: JoinSet<()>,
    sealer: Sealer,
}

impl Background {
    /// Starts them.
    pub fn start(parts: Parts, config: &Config) -> Self {
        let Parts {
            workspaces,
            unfinished,
            credentials,
            issuer,
            sealer,
            audit_key,
            known_audit_keys,
            db,
            clock,
            tier_roles,
        } = parts;
        let sweep = Duration::from_secs(config.sweep_seconds.into());
        let mut loops = JoinSet::new();
        loops.spawn(sweep_loop(unfinished, credentials, sweep));
        loops.spawn(purge_loop(issuer.clone(), sweep));
        loops.spawn(sealer.clone().keep());
        loops.spawn(retention_loop(
            db,
            clock,
            audit_key,
            known_audit_keys,
            config.audit.retention_days,
        ));
        loops.spawn(check_loop(issuer, sweep));
        loops.spawn(tier_roles.keep());
        loops.spawn(drift_loop(workspaces, config.drift_seconds));
        Self { loops, sealer }
    }

    /// Stops them, and seals the audit rows that the last requests left.
    pub async fn stop(mut self) {
        self.loops.shutdown().await;
        // If it fails, another replica or the next start does it.
        if let Err(error) = self.sealer.run().await {
            tracing::warn!(error = chain(&error), "audit rows stay unsealed for now");
        }
    }
}

/// Finishes what is half done, again and again.
async fn sweep_loop(workspaces: Workspaces, credentials: Credentials, every: Duration) {
    let mut ticks = ticks(every);
    loop {
        ticks.tick().await;
        if let Err(error) = workspaces.sweep().await {
            tracing::error!(error = chain(&error), "the sweep cannot read its work");
        }
        if let Err(error) = credentials.sweep().await {
            tracing::error!(
                error = chain(&error),
                "the Secrets of tokens that are over cannot be read"
            );
        }
        if let Err(error) = workspaces.take_stock().await {
            tracing::error!(error = chain(&error), "the workspaces cannot be counted");
        }
    }
}

/// Forgets what is over, again and again; apart from the sweep, which waits for nothing here.
async fn purge_loop(issuer: Issuer, every: Duration) {
    let mut ticks = ticks(every);
    loop {
        ticks.tick().await;
        if let Err(error) = issuer.purge().await {
            tracing::error!(error = chain(&error), "expired rows cannot be deleted");
        }
    }
}

/// Looks for objects of workspaces that were deleted or altered, again and again.
async fn drift_loop(workspaces: Workspaces, seconds: u32) {
    let mut ticks = ticks(Duration::from_secs(seconds.into()));
    loop {
        ticks.tick().await;
        if let Err(error) = workspaces.look_for_drift(seconds).await {
            tracing::error!(error = chain(&error), "the objects of workspaces cannot be looked at");
        }
    }
}

/// Asks providers about browsers' sessions, again and again; apart from the sweep, for a provider may
/// take its time.
async fn check_loop(issuer: Issuer, every: Duration) {
    let mut ticks = ticks(every);
    loop {
        ticks.tick().await;
        if let Err(error) = issuer.check_browsers().await {
            tracing::error!(error = chain(&error), "the sessions of browsers cannot be checked");
        }
    }
}

/// Deletes audit rows that are old enough, again and again.
async fn retention_loop(db: Db, clock: Clock, key: Arc<PrivateKey>, known: PublicKeys, days: u32) {
    if days == 0 {
        return;
    }
    let mut ticks = ticks(RETENTION);
    loop {
        ticks.tick().await;
        match audit::cut(&db, &clock, &key, &known, days).await {
            Ok(None) => {}
            // There may be more.
            Ok(Some(sequence)) => {
                tracing::info!(sequence, days, "old audit rows were deleted up to this one");
                ticks.reset_immediately();
            }
            Err(error) => {
                tracing::error!(error = chain(&error), "old audit rows cannot be deleted");
            }
        }
    }
}
