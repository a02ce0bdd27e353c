//! LimitRanges, and amounts of ResourceQuotas for the whole tenant, that an administrator deletes or
//! alters.

use serde_json::{Value, json};

use super::{Fixture, TENANT};
use crate::tenants::TENANT_BROKER;
use crate::tenants::cluster::namespace;
use crate::tenants::reconcile::{PRODUCTION, until};

const RANGE: [&str; 4] = ["limitrange", "tenant-limits-0", "-n", PRODUCTION];

pub(super) async fn limits_of_single_objects_come_back(fixture: &Fixture) {
    let of =
        |what: &str| format!("LimitRange tenant-limits-0 in {PRODUCTION} of tenant solar {what}");
    fixture.rounds(2).await;
    fixture.run(&[&["delete"][..], &RANGE].concat()).await;
    until_restored(fixture).await;
    fixture.until_recorded(&of("does not exist")).await;
    fixture.rounds(2).await;
    let more = r#"{"spec":{"limits":[{"type":"Container","default":{"memory":"8Gi"}}]}}"#;
    fixture.run(&[&["patch"][..], &RANGE, &["--type=merge", "-p", more]].concat()).await;
    until_restored(fixture).await;
    fixture.until_recorded(&of("has another spec")).await;
}

async fn until_restored(fixture: &Fixture) {
    until(&fixture.world, &RANGE, |range| {
        range["spec"]["limits"][0]["default"]["memory"] == "64Mi"
    })
    .await;
}

/// The broker finds its limits by the label, so it would not keep one without it.
pub(super) async fn limits_without_their_label_are_made_again(fixture: &Fixture) {
    let quota = ["resourcequota", "tenant-quota-0", "-n", PRODUCTION];
    for limit in [quota, RANGE] {
        let before = crate::object(&fixture.world, &limit).await.unwrap().unwrap();
        let unlabel = format!("{TENANT}-");
        fixture.run(&[&["label"][..], &limit, &[unlabel.as_str()]].concat()).await;
        until(&fixture.world, &limit, |it| {
            it["metadata"]["labels"][TENANT] == "solar" && it["spec"] == before["spec"]
        })
        .await;
    }
    // The bindings waited for the quota to be enforced.
    fixture.rounds(2).await;
}

/// An administrator may write any amount, also one beyond the limit for all namespaces together.
pub(super) async fn amounts_for_the_whole_tenant_come_back(fixture: &Fixture) {
    let object = json!({
        "apiVersion": TENANT_BROKER.1,
        "kind": "Tenant",
        "metadata": {"name": "lunar"},
        "spec": {
            "owners": [{"kind": "User", "name": "carol@example.com"}],
            "resourceQuotas": {"scope": "Tenant", "items": [{"hard": {"pods": "4"}}]},
        },
    });
    fixture.make(&object).await;
    let labels = json!({TENANT: "lunar", "pod-security.kubernetes.io/enforce": "restricted"});
    for name in ["lunar-a", "lunar-b"] {
        fixture.make(&namespace(name, &labels)).await;
    }
    until_divided(fixture).await;

    let quota = ["resourcequota", "tenant-quota-0", "-n", "lunar-a"];
    let more = r#"{"spec":{"hard":{"pods":"400"}}}"#;
    fixture.run(&[&["patch"][..], &quota, &["-p", more]].concat()).await;
    until_divided(fixture).await;
    // Runs of both tenants count.
    fixture.rounds(4).await;
    fixture.run(&[&["delete"][..], &quota].concat()).await;
    until_divided(fixture).await;
    let row = "ResourceQuota tenant-quota-0 in lunar-a of tenant lunar does not exist";
    fixture.until_recorded(row).await;
}

/// Waits until each of the two namespaces has half of the limit, also as admission has it.
async fn until_divided(fixture: &Fixture) {
    let has_half = |amounts: &Value| amounts["hard"]["pods"] == "2";
    for name in ["lunar-a", "lunar-b"] {
        let quota = ["resourcequota", "tenant-quota-0", "-n", name];
        until(&fixture.world, &quota, |quota| {
            has_half(&quota["spec"]) && has_half(&quota["status"])
        })
        .await;
    }
}
