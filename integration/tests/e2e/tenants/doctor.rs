//! `tenant-broker doctor`: the requests about tenants that it tries, and the policies that refuse them.

use std::collections::BTreeSet;

use integration::probe::{self, Probe};
use integration::world::World;
use serde_json::Value;

use super::cluster::RIGHTS_TIMEOUT;
use super::reconcile::{ALICE, PRODUCTION, apply, create_namespace, until_bound, until_status};
use super::{TENANT_BROKER, until_served};
use crate::doctor::{doctor, with};
use crate::install::install;

/// The checks that the broker may create namespaces.
const CREATIONS: [&str; 2] =
    ["can create a tenant's namespace", "can create a namespace of a tenant with several people"];

/// The beginnings of the titles of all checks that try a request.
const TRIED: [&str; 2] = ["can create ", "is refused: "];

/// The bindings of policies that refuse these requests, each with the checks that fail without it.
const REFUSALS: [(&str, &[&str]); 6] = [
    (
        "tenant-broker-fence-tenant-namespaces",
        &[
            "is refused: a namespace kube-* of a tenant",
            "is refused: a namespace tenant-* that is no home",
            "is refused: a namespace of a tenant whose name is reserved",
            "is refused: the move of a tenant's namespace to another tenant",
            "is refused: a home made of a tenant's namespace",
            "is refused: weaker pod security of a tenant's namespace",
            "is refused: a tenant's namespace without pod security",
        ],
    ),
    (
        "tenant-broker-fence-namespaces",
        &[
            "is refused: a namespace with another name",
            "is refused: a namespace that others manage",
            "is refused: a namespace without pod security",
            "is refused: the adoption of a foreign namespace",
            "is refused: the adoption of a foreign namespace for a tenant",
        ],
    ),
    (
        "tenant-broker-fence-tenant-objects",
        &[
            "is refused: a ServiceAccount in a home of a tenant that is no member's",
            "is refused: a binding of tenant-owner in a tenant's namespace",
            "is refused: a binding of the broker's own role in a tenant's namespace",
            "is refused: a binding of everybody in a tenant's namespace",
            "is refused: a binding of a member of another tenant",
            "is refused: a ServiceAccount in a tenant's namespace",
        ],
    ),
    (
        "tenant-broker-fence-tenants",
        &["is refused: a Tenant with a finalizer", "is refused: a Tenant with labels"],
    ),
    (
        "tenant-broker-fence-outside",
        &[
            "is refused: an account in kube-system",
            "is refused: a binding in kube-system",
            "is refused: a quota in kube-system",
            "is refused: an account in default",
            "is refused: a binding in default",
            "is refused: a quota in default",
        ],
    ),
    (
        "tenant-broker-fence-secrets",
        &["is refused: a Secret in kube-system", "is refused: a Secret in default"],
    ),
];

/// A world whose broker has all policies for requests that the doctor tries.
async fn world() -> World {
    let builder = World::builder().own_control_plane().bind_tokens();
    let builder = builder.installed("tenants.enabled", true).installed("tenants.write", true);
    builder.start().await.unwrap()
}

/// The titles of all checks that try a request.
fn titles() -> impl Iterator<Item = &'static str> {
    let refusals = REFUSALS.into_iter().flat_map(|(_, titles)| titles).copied();
    CREATIONS.into_iter().chain(refusals)
}

/// The titles of the checks among these that try a request.
fn tried<'a>(checks: impl IntoIterator<Item = &'a Value>) -> BTreeSet<&'a str> {
    let titles = checks.into_iter().filter_map(|check| check["check"].as_str());
    titles.filter(|title| TRIED.into_iter().any(|it| title.starts_with(it))).collect()
}

/// Those that have this outcome.
fn tried_with<'a>(outcome: &str, checks: &'a [Value]) -> BTreeSet<&'a str> {
    tried(checks.iter().filter(|check| check["outcome"] == outcome))
}

/// Waits until exactly these of the checks fail, and the others pass. The API server reloads changed
/// policies once a second.
async fn until_failed(world: &World, expected: &[&str]) {
    let expected: BTreeSet<&str> = expected.iter().copied().collect();
    let others: BTreeSet<&str> = titles().filter(|title| !expected.contains(title)).collect();
    let what = format!("the doctor to fail because of {expected:?}");
    probe::until(&what, RIGHTS_TIMEOUT, || async {
        let (passed, checks) = doctor(world, &[]).await;
        let is_so = tried_with("fail", &checks) == expected
            && tried_with("pass", &checks) == others
            && passed == expected.is_empty();
        let seen = (with("fail", &checks), with("warn", &checks));
        Ok(if is_so { Probe::Ready(()) } else { Probe::NotYet(format!("{seen:#?}")) })
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn each_request_that_the_doctor_tries_is_refused_by_a_policy() {
    let world = world().await;
    let admin = world.admin_kubectl().unwrap();
    until_served(&admin, TENANT_BROKER).await;
    apply(&admin, &[ALICE]).await;
    until_status(&world, |status| status["state"] == "Active").await;
    create_namespace(&admin, PRODUCTION).await;
    until_bound(&world, PRODUCTION, "admin", &["alice"]).await;
    // Each check that tries a request has a binding here.
    let (_, checks) = doctor(&world, &[]).await;
    assert_eq!(tried(&checks), titles().collect::<BTreeSet<&str>>());
    until_failed(&world, &[]).await;
    for (binding, checks) in REFUSALS {
        let delete = ["delete", "validatingadmissionpolicybinding", binding];
        admin.run(delete).await.unwrap().success().unwrap();
        until_failed(&world, checks).await;
        install(&world, &["--apply"]).await.success().unwrap();
        until_failed(&world, &[]).await;
    }
}
