//! Owners who fill the cluster with namespaces, through the gateway and directly at once.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use http::{Method, StatusCode};
use integration::acceptance::tenants::{Fixture, RECONCILE_TIMEOUT, SignedIn};
use integration::probe::{self, Probe};
use serde_json::{Value, json};
use tenant_shared::{Code, TENANT_LABEL};

use super::RBAC;
use super::attacker::Attacker;
use super::two_tenants::{ELIGIBLE, TwoTenants, until};
use crate::refused;
use crate::tenants::attempt::{namespace, post};
use crate::tenants::reconcile::has_condition;
use crate::tenants::suspension::{database, end_lease, hold_lease};

/// A tenant with a quota, and one without.
const LIMITED: &str = "limited";
const QUOTA: usize = 3;
const ENDLESS: &str = "endless";
/// Namespaces that the owner requests by each way in.
const REQUESTED: usize = 8;
const NAMESPACES: &str = "api/v1/namespaces";

/// Rows of as many namespaces as a tenant has at most. The broker leaves those that were just claimed to
/// the requests that create them.
const FILL: &str = "\
INSERT INTO tenant_namespaces (name, tenant_id, status, made_by, created_at, change_at) \
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 10000) \
SELECT 'endless-' || CAST(n AS TEXT), t.id, 'creating', t.id, unixepoch() * 1000, \
unixepoch() * 1000 FROM numbers, tenants t WHERE t.name = 'endless'";

/// Makes a tenant of one owner, who is a member then.
async fn make_tenant(fixture: &Fixture, name: &str, owner: &SignedIn, options: &Value) {
    let owners = json!([{"kind": "User", "name": owner.email}]);
    let spec = json!({"owners": owners, "namespaceOptions": options});
    fixture.apply(name, &spec).await.unwrap();
    fixture.until_state(name, "Active").await.unwrap();
    fixture.member(owner, name).await.unwrap();
}

/// Requests a namespace through the gateway.
async fn create(owner: &SignedIn, name: &str) -> (StatusCode, Value) {
    let object = namespace(name, &json!({}));
    owner.through_gateway(0, Method::POST, NAMESPACES, Some(&object)).await.unwrap()
}

/// Checks that a creation through the gateway was refused because of the quota.
fn is_over_quota((status, body): &(StatusCode, Value), counts: &str) {
    let text = format!("exceeded namespace quota: tenant {counts}");
    let message = body["message"].as_str().unwrap_or_default();
    assert!(*status == StatusCode::FORBIDDEN && message.contains(&text), "{status} {body}");
}

/// The namespaces in which the broker gave somebody the role `admin` of the tenant with a quota.
async fn with_rights(fixture: &Fixture) -> BTreeSet<String> {
    let selector = format!("fieldSelector=metadata.name%3Dtenant-{LIMITED}-admin");
    let path = format!("{RBAC}/rolebindings?{selector}");
    let (status, list) = fixture.cluster().admin(Method::GET, &path, None).await.unwrap();
    assert_eq!(status, StatusCode::OK, "{list}");
    let names = list["items"].as_array().unwrap().iter();
    names.map(|it| it["metadata"]["namespace"].as_str().unwrap().to_owned()).collect()
}

/// Waits until the API server gives namespaces of the owner the label of their tenant.
async fn until_labelled(owner: &Attacker) {
    let path = format!("{NAMESPACES}?dryRun=All");
    let attempt = post(path, namespace(&format!("{LIMITED}-x"), &json!({})));
    probe::until("the label of the tenant", RECONCILE_TIMEOUT, || async {
        let answer = owner.send(&attempt).await;
        let is_made = answer.status == StatusCode::CREATED && answer.text.contains(TENANT_LABEL);
        Ok(if is_made { Probe::Ready(()) } else { Probe::NotYet(answer.text) })
    })
    .await
    .unwrap();
}

/// Policies cannot count, so the API server creates what an owner requests directly. At no moment
/// anybody has rights in more namespaces than the quota allows.
pub(super) async fn no_tenant_has_more_namespaces_than_its_quota(tenants: &TwoTenants) {
    let (fixture, alice) = (&tenants.fixture, &tenants.alice.person);
    make_tenant(fixture, LIMITED, alice, &json!({"quota": QUOTA})).await;
    let direct = Attacker::with_certificate(&fixture.world, &alice.email, Some(ELIGIBLE), &[]);
    until_labelled(&direct).await;

    let is_over = AtomicBool::new(false);
    let creations = async {
        let created = create_everywhere(alice, &direct).await;
        let path = format!("apis/tenant-broker.io/v1alpha1/tenants/{LIMITED}");
        until(fixture, &path, |object| {
            let status = &object["status"];
            status["namespaces"] == json!(created) && has_condition(status, "QuotaExceeded")
        })
        .await;
        is_over.store(true, Ordering::SeqCst);
        created
    };
    let observer = async {
        while !is_over.load(Ordering::SeqCst) {
            let counted = with_rights(fixture).await;
            assert!(counted.len() <= QUOTA, "{counted:?}");
        }
    };
    let (created, ()) = tokio::join!(creations, observer);
    let counted = with_rights(fixture).await;
    assert_eq!(counted.len(), QUOTA, "{counted:?}");
    only_these_are_used(alice, &direct, &created, &counted).await;

    let counts = format!("{LIMITED} has {QUOTA} of {QUOTA}");
    is_over_quota(&create(alice, &format!("{LIMITED}-later")).await, &counts);
    // Others are not affected.
    tenants.carol.person.at(0).create_tenant_namespace("lunar", "lunar-b").await.unwrap();
}

/// Creates namespaces by both ways in at once. Returns the names of those that exist then.
async fn create_everywhere(owner: &SignedIn, direct: &Attacker) -> BTreeSet<String> {
    let through_gateway = (0..REQUESTED).map(|number| async move {
        let name = format!("{LIMITED}-gateway-{number}");
        let created = create(owner, &name).await;
        (name, created)
    });
    let directly = (0..REQUESTED).map(|number| async move {
        let name = format!("{LIMITED}-direct-{number}");
        let answer = direct.send(&post(NAMESPACES, namespace(&name, &json!({})))).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text);
        name
    });
    let (through_gateway, directly) = tokio::join!(join_all(through_gateway), join_all(directly));
    let mut names: BTreeSet<String> = directly.into_iter().collect();
    for (name, created) in through_gateway {
        if created.0 == StatusCode::CREATED {
            names.insert(name);
        } else {
            is_over_quota(&created, &format!("{LIMITED} has {QUOTA} of {QUOTA}"));
        }
    }
    names
}

/// The owner writes in the namespaces that count, and in no others, by both ways in.
async fn only_these_are_used(
    owner: &SignedIn,
    direct: &Attacker,
    created: &BTreeSet<String>,
    counted: &BTreeSet<String>,
) {
    let gateway = Attacker::at_gateway("an owner", owner.at(0), &[]);
    for name in created {
        let path = format!("{NAMESPACES}/{name}/configmaps?dryRun=All");
        let attempt = post(path, json!({"metadata": {"name": "x"}}));
        let is_counted = counted.contains(name);
        let expected = if is_counted { StatusCode::CREATED } else { StatusCode::FORBIDDEN };
        for way in [&gateway, direct] {
            let what = format!("{expected} in {name} for {}", way.who);
            probe::until(&what, RECONCILE_TIMEOUT, || async {
                let answer = way.send(&attempt).await;
                let is_expected = answer.status == expected;
                Ok(if is_expected { Probe::Ready(()) } else { Probe::NotYet(answer.text) })
            })
            .await
            .unwrap();
        }
    }
}

/// Nobody reconciles the tenant meanwhile, because the namespaces do not exist in the cluster.
pub(super) async fn a_tenant_without_a_quota_has_a_maximum(tenants: &TwoTenants) {
    let (fixture, alice) = (&tenants.fixture, &tenants.alice.person);
    make_tenant(fixture, ENDLESS, alice, &json!({})).await;
    let mut database = database(&fixture.world).await;
    let lease = hold_lease(&mut database, ENDLESS).await;
    let filled = sqlx::query(FILL).execute(&mut database).await.unwrap();
    assert_eq!(filled.rows_affected(), 10_000);

    let counts = format!("{ENDLESS} has 10000 of 10000");
    is_over_quota(&create(alice, "endless-gateway").await, &counts);
    let refusal = refused(alice.at(0).create_tenant_namespace(ENDLESS, "endless-rest").await);
    assert_eq!(refusal.code(), Code::NamespaceQuotaExceeded, "{refusal}");
    assert!(refusal.body.contains(&counts), "{refusal}");

    let emptied = "DELETE FROM tenant_namespaces WHERE name LIKE 'endless-%'";
    sqlx::query(emptied).execute(&mut database).await.unwrap();
    end_lease(&mut database, &lease).await;
    alice.at(0).create_tenant_namespace(ENDLESS, "endless-a").await.unwrap();
}
