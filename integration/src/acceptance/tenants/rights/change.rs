//! Random Tenants, and random changes of what gives rights. Pure.

use std::collections::BTreeSet;

use super::model::{Model, Person, Subject, Tenant};
use crate::acceptance::tenants::rng::Rng;

/// Groups that people are given.
const GROUPS: [&str; 2] = ["developers", "operators"];
/// ClusterRoles in Tenants. The operator does not allow the last one.
const ROLES: [&str; 5] = ["admin", "edit", "view", "tenant-namespace-deleter", "argo"];
/// ServiceAccount that owns tenants; one of another namespace has the same name.
pub(super) const ROBOT: (&str, &str) = ("build", "robot");

/// One change, which the model has already.
#[derive(Clone, Debug)]
pub(super) enum Change {
    /// The specification of the Tenant is replaced.
    Spec(String),
    /// A person gets other groups.
    Groups(usize),
    SuspendTenant(String),
    ResumeTenant(String),
    SuspendMember(usize, String),
    ResumeMember(usize, String),
    CreateNamespace {
        tenant: String,
        namespace: String,
    },
    DeleteNamespace(String),
}

/// A model with these people, and tenants of random specifications without namespaces.
pub(super) fn random_model(rng: &mut Rng, people: Vec<String>, tenants: &[String]) -> Model {
    let people = people.into_iter().map(|email| Person { email, groups: BTreeSet::new() });
    let mut model = Model { people: people.collect(), ..Model::default() };
    for name in tenants {
        let mut tenant = Tenant::default();
        set_random_spec(rng, &model, &mut tenant);
        model.tenants.insert(name.clone(), tenant);
    }
    model
}

/// Makes a random change of the model. `number` is another one at each change; `members` are those
/// with a membership.
pub(super) fn random_change(
    rng: &mut Rng,
    model: &mut Model,
    number: usize,
    members: &[(usize, String)],
) -> Change {
    let names: Vec<String> = model.tenants.keys().cloned().collect();
    loop {
        let Some(name) = rng.choose(&names).cloned() else { continue };
        let kind = rng.below(100);
        let people = model.people.clone();
        let copy = model.clone();
        let Some(tenant) = model.tenants.get_mut(&name) else { continue };
        match kind {
            0..40 => {
                set_random_spec(rng, &copy, tenant);
                return Change::Spec(name);
            }
            40..55 => {
                let person = rng.below(people.len());
                let groups = rng.subset(&GROUPS, 0).into_iter();
                let groups: BTreeSet<String> = groups.map(str::to_owned).collect();
                if model.people[person].groups != groups {
                    model.people[person].groups = groups;
                    return Change::Groups(person);
                }
            }
            55..63 if !tenant.is_suspended => {
                tenant.is_suspended = true;
                return Change::SuspendTenant(name);
            }
            55..70 if tenant.is_suspended => {
                tenant.is_suspended = false;
                return Change::ResumeTenant(name);
            }
            70..82 if !tenant.is_suspended => {
                let of_tenant: Vec<usize> = members
                    .iter()
                    .filter(|(_, of)| *of == name)
                    .map(|(person, _)| *person)
                    .collect();
                let Some(&person) = rng.choose(&of_tenant) else { continue };
                if tenant.suspended_members.remove(&person) {
                    return Change::ResumeMember(person, name);
                }
                tenant.suspended_members.insert(person);
                return Change::SuspendMember(person, name);
            }
            82..93 => {
                let namespace = format!("{name}-{number}");
                tenant.namespaces.insert(namespace.clone());
                return Change::CreateNamespace { tenant: name, namespace };
            }
            93.. if tenant.namespaces.len() > 1 && !tenant.is_suspended => {
                let all: Vec<String> = tenant.namespaces.iter().cloned().collect();
                let Some(namespace) = rng.choose(&all).cloned() else { continue };
                tenant.namespaces.remove(&namespace);
                return Change::DeleteNamespace(namespace);
            }
            _ => {}
        }
    }
}

fn set_random_spec(rng: &mut Rng, model: &Model, tenant: &mut Tenant) {
    let (namespace, name) = ROBOT;
    let robot = Subject::ServiceAccount { namespace: namespace.to_owned(), name: name.to_owned() };
    let mut pool: Vec<Subject> =
        model.people.iter().map(|person| Subject::User(person.email.clone())).collect();
    let groups =
        GROUPS.iter().copied().chain(["projectcapsule.dev", "system:serviceaccounts:build"]);
    pool.extend(groups.map(|group| Subject::Group(group.to_owned())));
    pool.extend([robot, Subject::User("nobody@example.com".to_owned())]);
    tenant.owners = random_subjects(rng, &pool, 3)
        .into_iter()
        .map(|owner| (owner, rng.subset(&ROLES, 1)))
        .collect();
    // The members of another tenant, whom a Tenant must not reach.
    let others = model.tenants.keys().map(|other| format!("system:serviceaccounts:tenant-{other}"));
    pool.extend(others.map(Subject::Group));
    tenant.bindings = (0..rng.below(4))
        .map(|_| (ROLES[rng.below(ROLES.len())], random_subjects(rng, &pool, 3)))
        .collect();
}

/// One to `max` different subjects.
fn random_subjects(rng: &mut Rng, pool: &[Subject], max: usize) -> Vec<Subject> {
    let count = 1 + rng.below(max);
    let mut chosen = BTreeSet::new();
    while chosen.len() < count {
        chosen.extend(rng.choose(pool).cloned());
    }
    chosen.into_iter().collect()
}
