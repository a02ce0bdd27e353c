//! The namespaces of a tenant: those that exist in the cluster with its label, compared with the
//! rows of the database.
//!
//! | row | in the cluster | becomes |
//! |---|---|---|
//! | over the quota | exists | claimed, as far as name and quota allow it |
//! | none, gone | exists | the same, unless it has a move, or the label of one: see `moves` |
//! | over the quota, none, gone | exists, and other Tenants name its ServiceAccounts | nothing |
//! | any but gone and orphaned | has the label of another tenant | nothing: see `moves` |
//! | creating, active | exists | it may have rights; a new one gets them by the request that created it |
//! | creating, active | is being deleted | terminating |
//! | terminating | exists again | creating |
//! | creating, claimed by a person a while ago, never seen | does not exist | the broker creates it |
//! | any other | does not exist | gone |

mod claims;
mod create;
pub(super) mod divide_quotas;
mod inputs;
pub(super) mod moves;
pub(super) mod quota_use;
pub(super) mod recorded_deletions;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;
use tenant_shared::{HOME_LABEL, TENANT_UID_LABEL, WORKSPACE_LABEL};

pub use self::create::{CreateNamespaceError, CreatedNamespace, NamespaceRequest};
use super::{TenantController, error::ReconcileError, objects::snapshot::Snapshot};
use crate::tenant::{
    AllocationKind, Condition, NamespaceMove, NamespaceRow, NamespaceStatus, Tenant, TenantRow,
    home_name,
};

/// How long a namespace may take to be created by the request that claimed it. After that the
/// controller finishes the creation.
const CREATION_GRACE: Duration = Duration::from_secs(15);

/// How long the objects of a namespace are left to the request that claimed it. A run that created
/// them at the same time would delay the request, because both would have conflicts.
const REQUEST_GRACE: Duration = Duration::from_secs(2);

/// Rows whose status one run changes, each in a transaction. Owners may delete any number of namespaces
/// at once, and rights that somebody lost are taken away after that.
pub(super) const MAX_STATUS_CHANGES: usize = 200;

/// The namespaces of a tenant by what may be done with them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TenantNamespaces {
    /// Namespaces in which people may have rights, with their rows' statuses.
    pub(super) allowed: BTreeMap<String, NamespaceStatus>,
    /// Allowed namespaces whose limits and rights a request is creating just now, with the time
    /// until that is this controller's to do. Rights that are too many are taken away even so.
    pub(super) left_to_request: BTreeMap<String, Duration>,
    /// Namespaces that are not changed, because they are being deleted.
    pub(super) terminating: Vec<String>,
    /// Namespaces beyond the quota.
    pub(super) over_quota: Vec<String>,
    /// Namespaces of others that carry the label of the tenant.
    pub(super) conflicts: Vec<String>,
    /// Namespaces of the tenant that carry the label of another one.
    pub(super) relabelled: Vec<String>,
    /// Moves into the tenant that have begun, by namespace.
    pub(super) incoming: BTreeMap<String, NamespaceMove>,
    /// Namespaces that a later run claims, because one run claims
    /// [`MAX_CLAIMS`](claims::MAX_CLAIMS) at most, or because of `waits_for_tenants`.
    pub(super) unclaimed: Vec<String>,
    /// Namespaces whose rows this version cannot read. They are left alone.
    pub(super) unreadable: Vec<String>,
    /// Those that may be gone, or carry the label of another tenant. They are left to a later run.
    pub(super) unchecked: Vec<String>,
    /// Whether claims wait until this process has read all Tenants.
    pub(super) waits_for_tenants: bool,
    /// Whether the next run claims others, because one run claims
    /// [`MAX_CLAIMS`](claims::MAX_CLAIMS) at most.
    pub(super) has_more_claims: bool,
    /// Whether rows were changed, and the next run has others to change.
    pub(super) has_more_changes: bool,
}

/// The namespaces of a tenant that exist without its label.
#[derive(Debug, Default)]
pub(super) struct Unlabelled {
    /// Those that are not in the snapshot, and about which the API server was not asked. A later run
    /// asks.
    pub(super) unchecked: BTreeSet<String>,
    /// Namespaces that somebody gave the label of another tenant.
    pub(super) relabelled: BTreeMap<String, Namespace>,
    /// Namespaces without the label of any tenant, which are the tenant's no longer.
    pub(super) released: BTreeSet<String>,
}

/// Action on a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// It stays as it is; people may have rights in it.
    Allow,
    /// It has to be claimed.
    Claim,
    /// Its row gets this status.
    Set(NamespaceStatus),
    /// It is another tenant's.
    Conflict,
    /// Nothing.
    Ignore,
}

fn step(row: Option<&NamespaceRow>, live: Option<&Namespace>, now: i64) -> Step {
    use NamespaceStatus::{Active, Creating, Gone, Orphaned, OverQuota, Terminating};
    let is_terminating = live.is_some_and(is_terminating);
    match (row.map(|row| row.status), live) {
        (Some(Creating), None) => match row {
            // It was deleted by somebody who may do so, so it is not made again.
            Some(row) if row.made_by.is_none() || row.was_seen() => Step::Set(Gone),
            Some(row) if is_older(row.change_at, now) => Step::Allow,
            _ => Step::Ignore,
        },
        (Some(Active | OverQuota | Terminating), None) => Step::Set(Gone),
        (Some(Orphaned), Some(_)) => Step::Conflict,
        (Some(Creating | Active), Some(_)) if is_terminating => Step::Set(Terminating),
        (Some(Creating | Active), Some(_)) => Step::Allow,
        (Some(Terminating), Some(_)) if !is_terminating => Step::Set(Creating),
        (Some(OverQuota | Gone) | None, Some(_)) if !is_terminating => Step::Claim,
        _ => Step::Ignore,
    }
}

/// Whether a row is that of a namespace which was not in the cluster until now.
fn is_unseen(row: &NamespaceRow) -> bool {
    row.status == NamespaceStatus::Creating && !row.was_seen()
}

fn is_older(since: i64, now: i64) -> bool {
    let grace = i64::try_from(CREATION_GRACE.as_millis()).unwrap_or(i64::MAX);
    now.saturating_sub(since) > grace
}

/// How long the objects of a namespace are still left to the request that claimed it; `None` if no
/// request did so just now.
fn time_of_request(row: &NamespaceRow, now: i64) -> Option<Duration> {
    if row.status != NamespaceStatus::Creating || row.made_by.is_none() {
        return None;
    }
    // The clock of the replica that claimed it may be ahead.
    let age = Duration::from_millis(now.abs_diff(row.created_at));
    REQUEST_GRACE.checked_sub(age).filter(|left| !left.is_zero())
}

/// Whether a namespace is being deleted.
pub fn is_terminating(namespace: &Namespace) -> bool {
    let phase = namespace.status.as_ref().and_then(|status| status.phase.as_deref());
    namespace.metadata.deletion_timestamp.is_some() || phase == Some("Terminating")
}

/// Whether a namespace is also a home or that of a personal workspace.
pub(super) fn has_labels_of_others(live: Option<&Namespace>) -> bool {
    let has = |label: &str| live.is_some_and(|live| live.labels().contains_key(label));
    has(HOME_LABEL) || has(WORKSPACE_LABEL)
}

/// Whether a namespace has the label that an administrator sets for a move.
pub fn has_label_of_a_move(live: &Namespace) -> bool {
    live.labels().contains_key(TENANT_UID_LABEL)
}

impl TenantNamespaces {
    /// Leaves a namespace to a later run, as it was: recorded beyond the quota, or not recorded.
    fn defer_claim(&mut self, name: String, is_recorded: bool) {
        if is_recorded { &mut self.over_quota } else { &mut self.unclaimed }.push(name);
    }

    /// Number of namespaces and their names, for the status.
    pub(super) fn names(&self) -> Vec<&str> {
        let others = self.terminating.iter().chain(&self.over_quota).chain(&self.relabelled);
        let others = others.chain(&self.unclaimed).chain(&self.unreadable).chain(&self.unchecked);
        self.allowed.keys().chain(others).map(String::as_str).collect()
    }

    /// Allocation of the namespace from the amounts for the whole tenant; `None` if it is not the
    /// tenant's.
    pub(super) fn allocation_of(&self, name: &str) -> Option<AllocationKind> {
        let is_in = |names: &[String]| names.iter().any(|it| it == name);
        if self.allowed.contains_key(name) {
            Some(AllocationKind::Grows)
        } else if is_in(&self.terminating) || is_in(&self.over_quota) {
            Some(AllocationKind::Kept)
        } else if [&self.relabelled, &self.unreadable, &self.unchecked]
            .into_iter()
            .any(|it| is_in(it))
        {
            Some(AllocationKind::Fixed)
        } else {
            None
        }
    }

    /// The namespaces that use a part of the amounts for the whole tenant.
    pub(super) fn divided(&self) -> impl Iterator<Item = &str> {
        let others = self.terminating.iter().chain(&self.relabelled).chain(&self.unreadable);
        self.allowed.keys().chain(others).chain(&self.unchecked).map(String::as_str)
    }

    /// The conditions about namespaces without rights.
    pub(super) fn conditions(&self, tenant: &Tenant) -> Vec<Condition> {
        let mut conditions = Vec::new();
        let used = self.allowed.len() + self.terminating.len();
        let quota = tenant.namespace_options.quota;
        if let Some(quota) = quota.filter(|quota| usize::try_from(*quota).is_ok_and(|it| used > it))
        {
            conditions.push(Condition::quota_lowered(&tenant.name, used, quota));
        }
        if !self.over_quota.is_empty() {
            let over: Vec<&str> = self.over_quota.iter().map(String::as_str).collect();
            let quota = quota.unwrap_or_default();
            conditions.push(Condition::quota_exceeded(&tenant.name, &over, quota));
        }
        if !self.conflicts.is_empty() || !self.relabelled.is_empty() {
            let conflicts: Vec<&str> = self.conflicts.iter().map(String::as_str).collect();
            let relabelled: Vec<&str> = self.relabelled.iter().map(String::as_str).collect();
            let condition = Condition::namespace_conflict(&tenant.name, &conflicts, &relabelled);
            conditions.push(condition);
        }
        conditions
    }
}

impl TenantController {
    /// Brings the rows of a tenant's namespaces up to date, and claims namespaces that were made at
    /// the API server. The rows have to be older than the snapshot, so that a namespace that was
    /// created in between is not taken for one that is gone. Relabelled ones and those that were not
    /// checked are left alone.
    ///
    /// # Errors
    /// The database failed.
    pub(super) async fn claim_namespaces(
        &self,
        row: &TenantRow,
        tenant: &Tenant,
        (rows, unlabelled): (Vec<NamespaceRow>, &Unlabelled),
        snapshot: &Snapshot,
    ) -> Result<TenantNamespaces, ReconcileError> {
        let home = home_name(&row.name);
        let mut places: BTreeMap<String, (Option<NamespaceRow>, Option<&Namespace>)> =
            rows.into_iter().map(|row| (row.name.clone(), (Some(row), None))).collect();
        for (name, live) in snapshot.namespaces().filter(|(name, _)| *name != home) {
            places.entry(name.to_owned()).or_default().1 = Some(live);
        }
        let moves = self.tenants.moves_into(row.id).await?;
        let moves: BTreeMap<String, NamespaceMove> =
            moves.into_iter().map(|it| (it.namespace.clone(), it)).collect();
        let incoming = self.incoming_moves(&moves, snapshot).await?;
        let mut namespaces = TenantNamespaces { incoming, ..TenantNamespaces::default() };
        let (mut to_claim, mut changes, mut has_more) = (Vec::new(), 0, false);
        let now = self.clock.now_ms();
        for (name, (known, live)) in places {
            if unlabelled.relabelled.contains_key(&name) {
                namespaces.relabelled.push(name);
                continue;
            }
            if unlabelled.unchecked.contains(&name) {
                has_more = true;
                namespaces.unchecked.push(name);
                continue;
            }
            let known = self.without_claim_of_a_move(known, live).await?;
            match step(known.as_ref(), live, now) {
                Step::Allow => {
                    if live.is_some() && known.as_ref().is_some_and(is_unseen) {
                        self.tenants.record_namespace_seen(row.id, &name).await?;
                    }
                    let left = known.as_ref().filter(|_| live.is_some());
                    if let Some(left) = left.and_then(|row| time_of_request(row, now)) {
                        namespaces.left_to_request.insert(name.clone(), left);
                    }
                    let status = known.map_or(NamespaceStatus::Creating, |row| row.status);
                    namespaces.allowed.insert(name, status);
                }
                Step::Set(_) if changes == MAX_STATUS_CHANGES => {
                    has_more = true;
                    // Nobody gets a right in it until its row says what it is.
                    if live.is_some() {
                        namespaces.terminating.push(name);
                    }
                }
                Step::Set(status) => {
                    changes += 1;
                    let from: Vec<_> = known.iter().map(|row| row.status).collect();
                    self.tenants.set_namespace_status(row.id, &name, &from, status).await?;
                    match status {
                        NamespaceStatus::Creating => {
                            namespaces.allowed.insert(name, status);
                        }
                        NamespaceStatus::Terminating => namespaces.terminating.push(name),
                        _ => {}
                    }
                }
                Step::Conflict => namespaces.conflicts.push(name),
                Step::Claim => to_claim.push((name, known, live)),
                Step::Ignore => {
                    let counts = known.is_some_and(|row| row.status.counts());
                    if counts && live.is_some() {
                        namespaces.terminating.push(name);
                    }
                }
            }
        }
        // Without a change the next run would find the same.
        namespaces.has_more_changes = has_more && changes > 0;
        // After the others, because one that is gone may leave room.
        let bound = snapshot.bound_namespaces(&row.name);
        self.claim_all((row, tenant), to_claim, (&moves, &bound), &mut namespaces).await?;
        Ok(namespaces)
    }

    /// The row of a namespace, unless a request claimed a namespace that has the label of a move. It
    /// was not created by that request, so the claim is released.
    async fn without_claim_of_a_move(
        &self,
        known: Option<NamespaceRow>,
        live: Option<&Namespace>,
    ) -> Result<Option<NamespaceRow>, ReconcileError> {
        if let Some((row, user)) = known.as_ref().and_then(|row| Some((row, row.made_by?)))
            && is_unseen(row)
            && live.is_some_and(has_label_of_a_move)
        {
            self.tenants.release_claim(row.tenant_id, &row.name, user).await?;
            return Ok(None);
        }
        Ok(known)
    }
}

#[cfg(test)]
mod tests {
    use NamespaceStatus::{Active, Creating, Gone, Orphaned, OverQuota, Terminating};
    use serde_json::json;
    use tenant_shared::TENANT_LABEL;
    use uuid::Uuid;

    use self::claims::MAX_CLAIMS;
    use super::*;
    use crate::{
        audit::{self, Action},
        cluster::Object,
        tenant::Claim,
        tenant_controller::testing::Fixture,
        testing::{On, on_both_engines},
    };

    const NOW: i64 = 1_000_000;

    fn row(status: NamespaceStatus, made_by: Option<Uuid>, age: i64) -> NamespaceRow {
        NamespaceRow {
            name: "solar-a".to_owned(),
            tenant_id: Uuid::nil(),
            status,
            made_by,
            created_at: NOW - age,
            change_at: NOW - age,
        }
    }

    fn live(phase: &str) -> Namespace {
        serde_json::from_value(json!({"metadata": {"name": "solar-a"}, "status": {"phase": phase}}))
            .unwrap()
    }

    on_both_engines!(
        one_run_claims_a_limited_number_of_namespaces,
        conflicts_leave_the_claims_of_a_run_to_others,
        namespaces_of_an_earlier_tenant_leave_the_claims_of_a_run_to_others,
        a_request_does_not_claim_a_namespace_with_the_label_of_a_move,
        one_run_changes_a_limited_number_of_rows,
    );

    fn tenant(spec: &serde_json::Value) -> Tenant {
        Tenant::parse("solar", spec).unwrap()
    }

    fn labelled(names: impl IntoIterator<Item = String>, labels: &serde_json::Value) -> Snapshot {
        Snapshot::new(names.into_iter().map(|name| {
            let metadata = json!({"name": name, "labels": labels});
            Object::Namespace(serde_json::from_value(json!({"metadata": metadata})).unwrap())
        }))
    }

    /// A fixture whose controller knows that there are no Tenants of others.
    async fn listed(on: On) -> Fixture {
        let fixture = Fixture::new(on).await;
        fixture.list_tenants([]);
        fixture
    }

    /// Claims what is not claimed yet.
    async fn claim(
        Fixture { controller, .. }: &Fixture,
        row: &TenantRow,
        tenant: &Tenant,
        live: &Snapshot,
    ) -> TenantNamespaces {
        let rows = controller.tenants.namespace_rows(row.id).await.unwrap().rows;
        controller
            .claim_namespaces(row, tenant, (rows, &Unlabelled::default()), live)
            .await
            .unwrap()
    }

    /// Rights are taken away after the claims, so these must not fill the time of a run.
    async fn one_run_claims_a_limited_number_of_namespaces(on: On) {
        let fixture = listed(on).await;
        let row = fixture.tenant("solar").await;
        let names = || (0..MAX_CLAIMS + 50).map(|number| format!("solar-{number:04}"));
        let live = labelled(names(), &json!({TENANT_LABEL: "solar"}));
        let owners = json!({"owners": [{"kind": "User", "name": "alice"}]});
        let claimed = claim(&fixture, &row, &tenant(&owners), &live).await;
        assert_eq!((claimed.allowed.len(), claimed.unclaimed.len()), (MAX_CLAIMS, 50));
        assert_eq!(claimed.names().len(), MAX_CLAIMS + 50, "all are in the status");
        let claimed = claim(&fixture, &row, &tenant(&owners), &live).await;
        assert_eq!((claimed.allowed.len(), claimed.unclaimed.len()), (MAX_CLAIMS + 50, 0));
        // Beyond a quota they are claimed in no run.
        let row = fixture.tenant("lunar").await;
        let names = || (0..MAX_CLAIMS + 50).map(|number| format!("lunar-{number:04}"));
        let live = labelled(names(), &json!({TENANT_LABEL: "lunar"}));
        let spec = json!({"owners": owners["owners"], "namespaceOptions": {"quota": 3}});
        let lunar = Tenant::parse("lunar", &spec).unwrap();
        for (over_quota, unclaimed) in [(MAX_CLAIMS - 3, 50), (MAX_CLAIMS + 47, 0)] {
            let claimed = claim(&fixture, &row, &lunar, &live).await;
            let counts = (claimed.allowed.len(), claimed.over_quota.len(), claimed.unclaimed.len());
            assert_eq!(counts, (3, over_quota, unclaimed));
        }
    }

    /// A run for namespaces that can never be claimed would follow the other for ever.
    async fn conflicts_leave_the_claims_of_a_run_to_others(on: On) {
        let fixture = listed(on).await;
        let row = fixture.tenant("solar").await;
        fixture.tenant("solar-wind").await;
        let conflicts = (0..MAX_CLAIMS + 50).map(|number| format!("solar-wind-{number:04}"));
        let names = conflicts.chain(["solar-z".to_owned()]);
        let live = labelled(names, &json!({TENANT_LABEL: "solar"}));
        let owners = json!({"owners": [{"kind": "User", "name": "alice"}]});
        let claimed = claim(&fixture, &row, &tenant(&owners), &live).await;
        assert_eq!(claimed.allowed.keys().collect::<Vec<_>>(), ["solar-z"]);
        assert_eq!((claimed.conflicts.len(), claimed.unclaimed.len()), (MAX_CLAIMS + 50, 0));
    }

    /// They come first by name, and can never be claimed.
    async fn namespaces_of_an_earlier_tenant_leave_the_claims_of_a_run_to_others(on: On) {
        let fixture = listed(on).await;
        let earlier = fixture.tenant("solar").await;
        let owners = json!({"owners": [{"kind": "User", "name": "alice"}]});
        let kept = || (0..MAX_CLAIMS + 50).map(|number| format!("solar-{number:04}"));
        let live = labelled(kept(), &json!({TENANT_LABEL: "solar"}));
        for unclaimed in [50, 0] {
            let claimed = claim(&fixture, &earlier, &tenant(&owners), &live).await;
            assert_eq!(claimed.unclaimed.len(), unclaimed);
        }
        fixture.controller.tenants.close(earlier.id).await.unwrap();
        let row = fixture.tenant("solar").await;
        let names = kept().chain(["solar-y".to_owned(), "solar-z".to_owned()]);
        let live = labelled(names, &json!({TENANT_LABEL: "solar"}));
        let claimed = claim(&fixture, &row, &tenant(&owners), &live).await;
        assert_eq!(claimed.allowed.keys().collect::<Vec<_>>(), ["solar-y", "solar-z"]);
        assert_eq!((claimed.conflicts.len(), claimed.unclaimed.len()), (MAX_CLAIMS + 50, 0));
    }

    /// Rights are taken away after the changes.
    async fn one_run_changes_a_limited_number_of_rows(on: On) {
        let fixture = listed(on).await;
        let row = fixture.tenant("solar").await;
        let all = 2 * MAX_STATUS_CHANGES + 50;
        let owners = json!({"owners": [{"kind": "User", "name": "alice"}]});
        let live = |phase: Option<&str>| {
            Snapshot::new((0..all).map(|number| {
                let labels = json!({TENANT_LABEL: "solar"});
                let metadata = json!({"name": format!("solar-{number:04}"), "labels": labels});
                let namespace = json!({"metadata": metadata, "status": {"phase": phase}});
                Object::Namespace(serde_json::from_value(namespace).unwrap())
            }))
        };
        for _ in 0..all.div_ceil(MAX_CLAIMS) {
            claim(&fixture, &row, &tenant(&owners), &live(None)).await;
        }
        let of = async |status: NamespaceStatus| {
            let rows = fixture.controller.tenants.namespace_rows(row.id).await.unwrap().rows;
            rows.iter().filter(|row| row.status == status).count()
        };
        let steps = [(MAX_STATUS_CHANGES, true), (2 * MAX_STATUS_CHANGES, true), (all, false)];
        for (changed, has_more) in steps {
            let claimed = claim(&fixture, &row, &tenant(&owners), &live(Some("Terminating"))).await;
            assert_eq!((claimed.terminating.len(), claimed.has_more_changes), (all, has_more));
            assert_eq!(of(Terminating).await, changed);
        }
        let gone = Snapshot::new([]);
        for (changed, has_more) in steps {
            let claimed = claim(&fixture, &row, &tenant(&owners), &gone).await;
            assert_eq!((claimed.names().len(), claimed.has_more_changes), (0, has_more));
            assert_eq!(of(Terminating).await, all - changed);
        }
    }

    /// They may have the label of another tenant.
    #[test]
    fn namespaces_that_are_not_checked_keep_their_amounts() {
        let unchecked = vec!["solar-x".to_owned()];
        let namespaces = TenantNamespaces { unchecked, ..TenantNamespaces::default() };
        assert_eq!(namespaces.names(), ["solar-x"]);
        assert_eq!(namespaces.divided().collect::<Vec<_>>(), ["solar-x"]);
        assert_eq!(namespaces.allocation_of("solar-x"), Some(AllocationKind::Fixed));
    }

    /// Its bindings from before would stay, and the audit trail would say that it was created.
    async fn a_request_does_not_claim_a_namespace_with_the_label_of_a_move(on: On) {
        let fixture = listed(on).await;
        let row = fixture.tenant("solar").await;
        let user = fixture.storage.user().await;
        let event = audit::Event::success(Action::CreateNamespace);
        let claimed =
            fixture.controller.tenants.claim_for_user(row.id, "solar-a", user, None, event);
        assert!(matches!(claimed.await.unwrap(), Some(Claim::Created)));
        let labels = json!({TENANT_LABEL: "solar", TENANT_UID_LABEL: row.object_uid});
        let live = labelled(["solar-a".to_owned()], &labels);
        let owners = json!({"owners": [{"kind": "User", "name": "alice"}]});
        let claimed = claim(&fixture, &row, &tenant(&owners), &live).await;
        assert_eq!(claimed.conflicts, ["solar-a"]);
        assert!(claimed.allowed.is_empty(), "{claimed:?}");
        assert_eq!(fixture.controller.tenants.namespace_row("solar-a").await.unwrap(), None);
    }

    #[test]
    fn a_namespace_with_the_label_of_a_move_is_not_claimed_by_its_name() {
        let has_label = |labels: serde_json::Value| {
            let live = serde_json::from_value(json!({"metadata": {"labels": labels}})).unwrap();
            has_label_of_a_move(&live)
        };
        assert!(has_label(json!({TENANT_UID_LABEL: "t-1"})));
        assert!(!has_label(json!({"tenant-broker.io/tenant": "solar"})));
        assert!(!has_label(json!({})));
    }

    #[test]
    fn each_row_and_namespace_has_a_step() {
        let (exists, terminating) = (live("Active"), live("Terminating"));
        for (status, if_exists, if_terminating, if_missing) in [
            (None, Step::Claim, Step::Ignore, Step::Ignore),
            (Some(Creating), Step::Allow, Step::Set(Terminating), Step::Set(Gone)),
            (Some(Active), Step::Allow, Step::Set(Terminating), Step::Set(Gone)),
            (Some(OverQuota), Step::Claim, Step::Ignore, Step::Set(Gone)),
            (Some(Terminating), Step::Set(Creating), Step::Ignore, Step::Set(Gone)),
            (Some(Gone), Step::Claim, Step::Ignore, Step::Ignore),
            (Some(Orphaned), Step::Conflict, Step::Conflict, Step::Ignore),
        ] {
            let row = status.map(|status| row(status, None, 0));
            let of = |live| step(row.as_ref(), live, NOW);
            assert_eq!(of(Some(&exists)), if_exists, "{status:?}");
            assert_eq!(of(Some(&terminating)), if_terminating, "{status:?}");
            assert_eq!(of(None), if_missing, "{status:?}");
        }
        let made = |age| step(Some(&row(Creating, Some(Uuid::nil()), age)), None, NOW);
        assert_eq!(made(15_000), Step::Ignore, "the request may create it");
        assert_eq!(made(15_001), Step::Allow, "the request failed");
    }

    /// The person who may delete it has just done so.
    #[test]
    fn a_namespace_that_was_seen_and_is_deleted_is_not_created_again() {
        for age in [0, 15_001] {
            let new = row(Creating, Some(Uuid::nil()), age);
            assert!(is_unseen(&new));
            let seen = NamespaceRow { created_at: new.created_at - 1, ..new };
            assert!(!is_unseen(&seen));
            assert_eq!(step(Some(&seen), None, NOW), Step::Set(Gone));
            assert_eq!(step(Some(&seen), Some(&live("Active")), NOW), Step::Allow);
        }
        assert!(!is_unseen(&row(Active, None, 0)));
    }

    #[test]
    fn a_new_namespace_is_left_to_its_request_for_a_moment() {
        let left = |row: &NamespaceRow| time_of_request(row, NOW).map(|left| left.as_millis());
        let made = |status, age| row(status, Some(Uuid::nil()), age);
        for (age, expected) in [
            (0, Some(2_000)),
            (1_999, Some(1)),
            (2_000, None),
            (-500, Some(1_500)),
            (-60_000, None),
        ] {
            assert_eq!(left(&made(Creating, age)), expected, "{age}");
        }
        let seen = NamespaceRow { change_at: NOW, ..made(Creating, 100) };
        assert_eq!(left(&seen), Some(1_900), "its age is that of the claim");
        assert_eq!(left(&made(Active, 0)), None);
        assert_eq!(left(&row(Creating, None, 0)), None, "it was made at the API server");
    }

    /// Rights that somebody has are not taken away by a quota.
    #[test]
    fn a_quota_below_the_number_of_namespaces_is_reported() {
        let tenant = |quota: u32| {
            let spec = json!({"owners": [{"kind": "User", "name": "alice"}],
                "namespaceOptions": {"quota": quota}});
            Tenant::parse("solar", &spec).unwrap()
        };
        let namespaces = TenantNamespaces {
            allowed: [("solar-a".to_owned(), Active)].into(),
            terminating: vec!["solar-b".to_owned()],
            ..TenantNamespaces::default()
        };
        assert!(namespaces.conditions(&tenant(2)).is_empty());
        let conditions = namespaces.conditions(&tenant(1));
        assert_eq!(conditions, [Condition::quota_lowered(&tenant(1).name, 2, 1)]);
    }

    /// The size of the status keeps a Tenant with namespaces from being deleted.
    #[test]
    fn namespaces_with_unreadable_rows_are_in_the_status() {
        let unreadable = vec!["solar-x".to_owned()];
        let namespaces = TenantNamespaces { unreadable, ..TenantNamespaces::default() };
        assert_eq!(namespaces.names(), ["solar-x"]);
    }
}
