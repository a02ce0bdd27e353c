//! `tenant-broker doctor`: the requests about tenants that it tries, and the policies that refuse them.

use std::collections::BTreeSet;

use integration::probe::{self, Probe};
use integration::world::World;
use serde_json::Value;

use super::cluster::RIGHTS_TIMEOUT;
use super::reconcile::{
    ALICE, PRODUCTION, apply, create_namespace, until_bound, until_status, world,
};
use super::{TENANT_BROKER, until_served};
use crate::doctor::{doctor, with};
use crate::install::install;

/// The check that the broker may create a namespace of a tenant.
const CREATION: &str = "can create a namespace of a tenant with several people";

/// The bindings of policies that refuse these requests, each with the checks that fail without it.
const REFUSALS: [(&str, &[&str]); 3] = [
    (
        "tenant-broker-fence-tenant-namespaces",
        &[
            "is refused: a namespace kube-* of a tenant",
            "is refused: a namespace tenant-* that is no home",
            "is refused: a namespace of a tenant whose name is reserved",
        ],
    ),
    (
        "tenant-broker-fence-namespaces",
        &["is refused: the adoption of a foreign namespace for a tenant"],
    ),
    (
        "tenant-broker-fence-tenant-objects",
        &[
            "is refused: a ServiceAccount in a home of a tenant that is no member's",
            "is refused: a binding of tenant-owner in a tenant's namespace",
            "is refused: a binding of everybody in a tenant's namespace",
            "is refused: a ServiceAccount in a tenant's namespace",
        ],
    ),
];

/// The titles of all checks about tenants that try a request.
fn titles() -> impl Iterator<Item = &'static str> {
    let refusals = REFUSALS.into_iter().flat_map(|(_, titles)| titles).copied();
    std::iter::once(CREATION).chain(refusals)
}

/// Those of them that have this outcome.
fn titles_with<'a>(outcome: &str, checks: &'a [Value]) -> BTreeSet<&'a str> {
    let with_outcome = checks.iter().filter(|check| check["outcome"] == outcome);
    let found = with_outcome.filter_map(|check| check["check"].as_str());
    found.filter(|title| titles().any(|it| it == *title)).collect()
}

/// Waits until exactly these of the checks fail, and the others pass. The API server reloads changed
/// policies once a second.
async fn until_failed(world: &World, expected: &[&str]) {
    let expected: BTreeSet<&str> = expected.iter().copied().collect();
    let others: BTreeSet<&str> = titles().filter(|title| !expected.contains(title)).collect();
    let what = format!("the doctor to fail because of {expected:?}");
    probe::until(&what, RIGHTS_TIMEOUT, || async {
        let (passed, checks) = doctor(world, &[]).await;
        let is_so = titles_with("fail", &checks) == expected
            && titles_with("pass", &checks) == others
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
    until_failed(&world, &[]).await;
    for (binding, checks) in REFUSALS {
        let delete = ["delete", "validatingadmissionpolicybinding", binding];
        admin.run(delete).await.unwrap().success().unwrap();
        until_failed(&world, checks).await;
        install(&world, &["--apply"]).await.success().unwrap();
        until_failed(&world, &[]).await;
    }
}
