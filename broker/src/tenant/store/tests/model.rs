//! Random sequences of calls, compared with a model in memory.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
};

use proptest::{
    prelude::*,
    test_runner::{TestCaseResult, TestRunner},
};

use super::*;

on_both_engines!(random_calls_do_what_the_model_does);

/// Names of tenants, objects of each name, and names of namespaces.
const NAMES: usize = 2;
const OBJECTS: usize = 3;
const NAMESPACES: usize = 4;

#[derive(Clone, Debug)]
enum Call {
    Observe { name: usize, group: ApiGroup, object: usize },
    Close { name: usize },
    Claim { name: usize, namespace: usize, quota: Option<u32> },
    RecordOverQuota { name: usize, namespace: usize },
    SetStatus { namespace: usize, from: Vec<NamespaceStatus>, to: NamespaceStatus },
    Release { namespace: usize },
}

fn status() -> impl Strategy<Value = NamespaceStatus> {
    prop::sample::select(NamespaceStatus::ALL.to_vec())
}

fn call() -> impl Strategy<Value = Call> {
    let group = prop_oneof![4 => Just(BROKER_GROUP), 1 => Just(ApiGroup::Capsule)];
    prop_oneof![
        4 => (0..NAMES, group, 0..OBJECTS)
            .prop_map(|(name, group, object)| Call::Observe { name, group, object }),
        1 => (0..NAMES).prop_map(|name| Call::Close { name }),
        8 => (0..NAMES, 0..NAMESPACES, prop::option::of(0..4_u32))
            .prop_map(|(name, namespace, quota)| Call::Claim { name, namespace, quota }),
        2 => (0..NAMES, 0..NAMESPACES)
            .prop_map(|(name, namespace)| Call::RecordOverQuota { name, namespace }),
        4 => (0..NAMESPACES, prop::collection::vec(status(), 0..4), status())
            .prop_map(|(namespace, from, to)| Call::SetStatus { namespace, from, to }),
        1 => (0..NAMESPACES).prop_map(|namespace| Call::Release { namespace }),
    ]
}

/// An open tenant: its identifier, and the object that it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OpenTenant {
    id: Uuid,
    group: ApiGroup,
    object: usize,
}

#[derive(Debug, Default)]
struct Model {
    open: BTreeMap<usize, OpenTenant>,
    /// Names and numbers of objects whose rows were closed.
    closed_objects: BTreeSet<(usize, usize)>,
    /// The tenants that have or had each name, the last one at the end.
    ids: BTreeMap<usize, Vec<Uuid>>,
    namespaces: BTreeMap<usize, (Uuid, NamespaceStatus)>,
}

impl Model {
    fn close(&mut self, name: usize) {
        let Some(closed) = self.open.remove(&name) else { return };
        self.closed_objects.insert((name, closed.object));
        for (owner, status) in self.namespaces.values_mut() {
            if *owner == closed.id && *status != NamespaceStatus::Gone {
                *status = NamespaceStatus::Orphaned;
            }
        }
    }

    fn opened(&mut self, name: usize, tenant: OpenTenant) {
        self.open.insert(name, tenant);
        self.ids.entry(name).or_default().push(tenant.id);
    }

    /// The tenant that has or had this name; one that does not exist if there is none.
    fn id(&self, name: usize) -> Uuid {
        self.ids.get(&name).and_then(|ids| ids.last()).copied().unwrap_or_default()
    }

    fn used(&self, id: Uuid) -> u32 {
        let counted =
            self.namespaces.values().filter(|(owner, status)| *owner == id && status.counts());
        u32::try_from(counted.count()).unwrap()
    }

    /// What a claim of an open tenant returns, without the values of an existing row.
    fn claim(&mut self, id: Uuid, namespace: usize, quota: Option<u32>) -> Claimed {
        let (used, quota) = (self.used(id), quota.unwrap_or(10_000));
        let existing = self.namespaces.get(&namespace).copied();
        let existing = existing.filter(|(_, status)| *status != NamespaceStatus::Gone);
        match existing {
            Some((owner, _)) if owner != id => return Claimed::OtherTenant,
            Some((_, status)) if status != NamespaceStatus::OverQuota => {
                return Claimed::Exists(status);
            }
            _ if used >= quota => return Claimed::Full(used, quota),
            _ => {}
        }
        self.namespaces.insert(namespace, (id, NamespaceStatus::Creating));
        match existing {
            Some(_) => Claimed::Exists(NamespaceStatus::Creating),
            None => Claimed::Created,
        }
    }
}

/// The part of a [`Claim`] that the model knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claimed {
    Created,
    Exists(NamespaceStatus),
    Full(u32, u32),
    OtherTenant,
}

impl From<Claim> for Claimed {
    fn from(claim: Claim) -> Self {
        match claim {
            Claim::Created => Self::Created,
            Claim::Exists(row) => Self::Exists(row.status),
            Claim::QuotaExceeded { used, quota } => Self::Full(used, quota),
            Claim::OtherTenant => Self::OtherTenant,
        }
    }
}

/// The rows of one sequence; its names have a number, because all sequences share a database.
struct Case {
    tenants: Tenants,
    number: u32,
}

impl Case {
    fn tenant(&self, number: usize) -> TenantName {
        name(&format!("c{}-{number}", self.number))
    }

    fn uid(&self, name: usize, object: usize) -> String {
        format!("uid-{}-{name}-{object}", self.number)
    }

    fn namespace(&self, number: usize) -> String {
        format!("c{}-n{number}", self.number)
    }

    async fn run(&self, calls: Vec<Call>) -> TestCaseResult {
        let mut model = Model::default();
        for call in calls {
            self.apply(&mut model, call).await?;
            self.compare(&model).await?;
        }
        Ok(())
    }

    async fn apply(&self, model: &mut Model, call: Call) -> TestCaseResult {
        match call {
            Call::Observe { name, group, object } => {
                self.observe(model, name, group, object).await?;
            }
            Call::Close { name } => {
                self.tenants.close(model.id(name)).await.unwrap();
                model.close(name);
            }
            Call::Claim { name, namespace, quota } => {
                let (id, text) = (model.id(name), self.namespace(namespace));
                let claimed = self.tenants.claim_namespace(id, &text, None, quota).await;
                if model.open.contains_key(&name) {
                    let expected = model.claim(id, namespace, quota);
                    prop_assert_eq!(Claimed::from(claimed.unwrap()), expected);
                } else {
                    prop_assert!(matches!(claimed, Err(sqlx::Error::RowNotFound)));
                }
            }
            Call::RecordOverQuota { name, namespace } => {
                let (id, text) = (model.id(name), self.namespace(namespace));
                let recorded = self.tenants.record_over_quota(id, &text).await;
                if model.open.contains_key(&name) {
                    let existing = model.namespaces.get(&namespace);
                    let free = existing.is_none_or(|(_, status)| *status == NamespaceStatus::Gone);
                    prop_assert_eq!(recorded.unwrap(), free);
                    if free {
                        model.namespaces.insert(namespace, (id, NamespaceStatus::OverQuota));
                    }
                } else {
                    prop_assert!(matches!(recorded, Err(sqlx::Error::RowNotFound)));
                }
            }
            Call::SetStatus { namespace, from, to } => {
                let text = self.namespace(namespace);
                let holder = model.namespaces.get(&namespace).map(|(id, _)| *id);
                let holder = holder.unwrap_or_default();
                let other = self.tenants.set_namespace_status(Uuid::max(), &text, &from, to).await;
                prop_assert!(!other.unwrap(), "it is the namespace of another tenant");
                let set = self.tenants.set_namespace_status(holder, &text, &from, to).await;
                let set = set.unwrap();
                let expected = match model.namespaces.get_mut(&namespace) {
                    Some((_, status))
                        if from.contains(status) && (status.counts() || !to.counts()) =>
                    {
                        *status = to;
                        true
                    }
                    _ => false,
                };
                prop_assert_eq!(set, expected);
            }
            Call::Release { namespace } => {
                self.tenants.release_namespace(&self.namespace(namespace)).await.unwrap();
                model.namespaces.remove(&namespace);
            }
        }
        Ok(())
    }

    async fn observe(
        &self,
        model: &mut Model,
        name: usize,
        group: ApiGroup,
        object: usize,
    ) -> TestCaseResult {
        let uid = self.uid(name, object);
        let observed = self.tenants.observe(&self.tenant(name), group, &uid).await.unwrap();
        let before = model.open.get(&name).copied();
        let expected = match before {
            None => "current",
            Some(open) if open.group != group => "taken",
            Some(open) if open.object == object => "current",
            Some(_) if model.closed_objects.contains(&(name, object)) => "taken",
            Some(_) => "recreated",
        };
        let (kind, row) = match observed {
            Observed::Current(row) => ("current", row),
            Observed::NameTaken(row) => ("taken", row),
            Observed::Recreated(row) => ("recreated", row),
        };
        prop_assert_eq!(kind, expected);
        if kind == "recreated" {
            model.close(name);
        }
        if !model.open.contains_key(&name) {
            prop_assert!(model.ids.values().flatten().all(|id| *id != row.id), "a new identifier");
            model.opened(name, OpenTenant { id: row.id, group, object });
        }
        prop_assert_eq!(row.id, model.id(name));
        Ok(())
    }

    /// Compares all rows with the model.
    async fn compare(&self, model: &Model) -> TestCaseResult {
        for name in 0..NAMES {
            let row = self.tenants.by_name(&self.tenant(name)).await.unwrap();
            let expected = model.open.get(&name).map(|open| {
                (open.id, open.group, self.uid(name, open.object), TenantStatus::Active)
            });
            let row = row.map(|row| (row.id, row.group, row.object_uid, row.status));
            prop_assert_eq!(row, expected);
            for id in model.ids.get(&name).into_iter().flatten() {
                let expected: Vec<_> = model
                    .namespaces
                    .iter()
                    .filter(|(_, (owner, _))| owner == id)
                    .map(|(namespace, (_, status))| (self.namespace(*namespace), *status))
                    .collect();
                prop_assert_eq!(statuses(&self.tenants, *id).await, expected);
            }
        }
        Ok(())
    }
}

async fn random_calls_do_what_the_model_does(on: On) {
    let storage = Storage::new(on).await;
    let number = Cell::new(0);
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) };
    let calls = prop::collection::vec(call(), 1..32);
    // The runner is not asynchronous.
    tokio::task::block_in_place(|| {
        let run = |calls| {
            number.set(number.get() + 1);
            let case = Case { tenants: tenants(&storage), number: number.get() };
            tokio::runtime::Handle::current().block_on(case.run(calls))
        };
        TestRunner::new(config).run(&calls, run).unwrap();
    });
}
