//! Watches of namespaces through the gateway, from the answer to a change until the event that shows
//! it, or until the end of the watch.
//!
//! The answer to a change may come after its event: a creation is acknowledged when the rights are in
//! force, and a suspension when it is complete. The value is negative then.

use std::time::Instant;

use anyhow::{Result, ensure};
use http::Method;
use serde_json::json;
use tenant_shared::{HOME_LABEL, SuspendRequest, TENANT_LABEL, WorkspaceStatus};
use uuid::Uuid;

use super::namespace_watch::NamespaceWatch;
use super::objects::{NAMESPACES, TENANTS, plain_namespace};
use super::plan::{Measured, TenantPlan};
use super::population::{
    WATCHED, WATCHER, WATCHERS, leaving_owner, namespace_of, watched, watched_spec,
};
use super::testbed::{Member, TenantTestbed};
use crate::measure::figure::{Figure, Threshold};
use crate::measure::raw::{RawApi, ms, ms_between};

/// Each event and each end comes within a second.
const THRESHOLD: Threshold = Threshold::ValueBelow(1e3);

/// A change that ends the watch of a member.
#[derive(Clone, Copy, Debug)]
enum EndingChange {
    /// The entry of the owner is removed from the Tenant.
    OwnerRemoved,
    /// The member loses the group that is an owner.
    GroupTaken,
    /// The membership is suspended.
    MembershipSuspended,
}

impl EndingChange {
    const ALL: [Self; 3] = [Self::OwnerRemoved, Self::GroupTaken, Self::MembershipSuspended];

    fn name(self) -> &'static str {
        match self {
            Self::OwnerRemoved => "owner removed from the Tenant",
            Self::GroupTaken => "group of a member taken away",
            Self::MembershipSuspended => "membership suspended",
        }
    }

    /// A member whose watch ends in this round.
    async fn member(self, testbed: &TenantTestbed, round: usize) -> Result<Member> {
        match self {
            Self::OwnerRemoved => testbed.member(&leaving_owner(round), &[]).await,
            Self::GroupTaken => testbed.member(&format!("ungrouped{round:02}"), &[WATCHERS]).await,
            Self::MembershipSuspended => {
                testbed.member(&format!("barred{round:02}"), &[WATCHERS]).await
            }
        }
    }

    /// Makes the change. Owners with a later number stay.
    async fn make(
        self,
        testbed: &TenantTestbed,
        (member, membership): (&Member, Uuid),
        (round, rounds): (usize, usize),
    ) -> Result<()> {
        match self {
            Self::OwnerRemoved => {
                let change = json!({"spec": watched_spec(round + 1..rounds)});
                let path = format!("{TENANTS}/{WATCHED}");
                testbed.admin().succeed(Method::PATCH, &path, Some(&change)).await.map(drop)
            }
            Self::GroupTaken => testbed.set_groups(member.id, &[]).await,
            Self::MembershipSuspended => {
                let reason = SuspendRequest { reason: Some("measured".to_owned()) };
                let suspension = testbed.operator().suspend(membership, &reason).await?;
                let is_suspended = suspension.status == WorkspaceStatus::Suspended;
                ensure!(is_suspended, "not suspended: {suspension:?}");
                Ok(())
            }
        }
    }
}

/// Makes a tenant, and measures all changes of what its members see, each on a broker that is at rest.
///
/// # Errors
/// A request fails, or a watch shows no change.
pub(super) async fn measure(testbed: &TenantTestbed, plan: TenantPlan) -> Result<Measured> {
    testbed.create_tenant(watched(plan.watches)).await?;
    let mut figures = namespaces(testbed, plan).await?;
    for change in EndingChange::ALL {
        figures.extend(ends(testbed, change, plan.watches).await?);
    }
    Ok(Measured { figures, ..Measured::default() })
}

/// Creates and deletes namespaces through the gateway. An administrator watches the same namespaces
/// at the API server.
async fn namespaces(testbed: &TenantTestbed, plan: TenantPlan) -> Result<Vec<Figure>> {
    let watcher = testbed.member(WATCHER, &[]).await?;
    testbed.join(&watcher, WATCHED).await?;
    let gateway = testbed.gateway(&watcher)?;
    let selector = format!("{TENANT_LABEL}%20in%20({WATCHED}),!{HOME_LABEL}");
    let direct_path = format!("{NAMESPACES}?watch=1&labelSelector={selector}");
    let (mut creations, mut deletions) = (Vec::new(), Vec::new());
    // The first round finds connections and caches cold.
    for round in 0..=plan.watches {
        let namespace = namespace_of(WATCHED, round + 1);
        let mut watch = open_watch(&gateway).await?;
        let first = namespace_of(WATCHED, 0);
        let mut direct = NamespaceWatch::open(testbed.admin(), &direct_path, &first).await?;
        testbed.until_quiet().await?;
        let object = plain_namespace(&namespace);
        gateway.succeed(Method::POST, NAMESPACES, Some(&object)).await?;
        let created = Instant::now();
        let (shown, shown_directly) =
            tokio::try_join!(watch.until("ADDED", &namespace), direct.until("ADDED", &namespace))?;
        let creation = (ms_between(created, shown), ms_between(created, shown_directly));
        testbed.until_quiet().await?;
        let path = format!("{NAMESPACES}/{namespace}");
        gateway.succeed(Method::DELETE, &path, None).await?;
        let deleted = Instant::now();
        let (shown, shown_directly) = tokio::try_join!(
            watch.until("DELETED", &namespace),
            direct.until("DELETED", &namespace)
        )?;
        // The namespace lives until its objects are gone, which Kubernetes alone decides.
        let deletion = (ms_between(shown_directly, shown), ms_between(deleted, shown_directly));
        if round > 0 {
            creations.push(creation);
            deletions.push(deletion);
        }
    }
    let figures = [
        Figure::of_pairs(
            "watch of namespaces: creation, from its answer to ADDED",
            "ms",
            "directly, as an administrator",
            &creations,
            THRESHOLD,
        ),
        Figure::of_pairs(
            "watch of namespaces: deletion, from DELETED of the API server to DELETED",
            "ms",
            "its answer to DELETED of the API server",
            &deletions,
            THRESHOLD,
        ),
    ];
    Ok(figures.into_iter().flatten().collect())
}

/// Ends the watch of another member in each round.
async fn ends(
    testbed: &TenantTestbed,
    change: EndingChange,
    rounds: usize,
) -> Result<Option<Figure>> {
    let mut pairs = Vec::with_capacity(rounds);
    for round in 0..rounds {
        let member = change.member(testbed, round).await?;
        let membership = testbed.join(&member, WATCHED).await?.id;
        let mut watch = open_watch(&testbed.gateway(&member)?).await?;
        testbed.until_idle().await?;
        let called = Instant::now();
        change.make(testbed, (&member, membership), (round, rounds)).await?;
        let answered = Instant::now();
        let ended = watch.until_ended().await?;
        pairs.push((ms_between(answered, ended), ms(answered - called)));
    }
    let name = format!("watch of namespaces: {}, from the answer to the end", change.name());
    Ok(Figure::of_pairs(name, "ms", "the change, call to its answer", &pairs, THRESHOLD))
}

/// Opens a watch through the gateway.
async fn open_watch(gateway: &RawApi) -> Result<NamespaceWatch> {
    let path = format!("{NAMESPACES}?watch=1");
    NamespaceWatch::open(gateway, &path, &namespace_of(WATCHED, 0)).await
}
