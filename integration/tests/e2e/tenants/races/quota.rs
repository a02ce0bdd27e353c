//! A limit for the whole tenant (`resourceQuotas` of scope `Tenant`) while its amounts move between
//! namespaces, and objects are only created.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use http::{Method, StatusCode};
use integration::acceptance::tenants::{Credential, Fixture, RECONCILE_TIMEOUT};
use serde_json::{Value, json};

use super::{Owners, create};

/// The tenant in which nothing is deleted.
pub(super) const TENANT: &str = "amount";
/// Maximum number of ConfigMaps of a tenant.
pub(super) const MAX_CONFIG_MAPS: usize = 24;
/// Members who create ConfigMaps at once.
pub(super) const CREATORS: usize = 8;
/// Namespaces of a tenant.
pub(super) const NAMESPACES: usize = 4;

/// The field `resourceQuotas` of a Tenant with the limit.
pub(super) fn limit() -> Value {
    json!({"items": [{"hard": {"configmaps": MAX_CONFIG_MAPS.to_string()}}]})
}

/// Makes a tenant with the limit. Returns the token of a member, and the names of the namespaces.
pub(super) async fn make_tenant(
    fixture: &Fixture,
    owners: &Owners,
    tenant: &str,
) -> (Credential, Vec<String>) {
    owners.make(fixture, tenant, json!({"resourceQuotas": limit()})).await;
    let (_, token) = fixture.member(&owners.alice, tenant).await.unwrap();
    let namespaces: Vec<String> =
        (0..NAMESPACES).map(|number| format!("{tenant}-{number}")).collect();
    for (number, namespace) in namespaces.iter().enumerate() {
        create(&owners.alice, number, tenant, namespace).await.unwrap();
    }
    (token, namespaces)
}

/// Members who fill a tenant.
struct Load {
    /// The namespaces without creators at first, whose shares have to move, are filled as well.
    is_everywhere: AtomicBool,
    is_over: AtomicBool,
}

pub(super) async fn a_limit_for_the_whole_tenant_is_never_exceeded(
    fixture: &Fixture,
    owners: &Owners,
) {
    let (token, namespaces) = make_tenant(fixture, owners, TENANT).await;
    let load = Load { is_everywhere: AtomicBool::new(false), is_over: AtomicBool::new(false) };
    let creators = (0..CREATORS).map(|number| {
        let index = number % NAMESPACES;
        fill(fixture, &token, &namespaces[index], index < 2, &load)
    });
    let observer = async {
        // More than the shares of two namespaces: amounts were moved.
        while count_within_the_limit(fixture, TENANT).await <= MAX_CONFIG_MAPS / 2 {}
        load.is_everywhere.store(true, Ordering::SeqCst);
        while count_within_the_limit(fixture, TENANT).await < MAX_CONFIG_MAPS {}
        load.is_over.store(true, Ordering::SeqCst);
    };
    let all = async { tokio::join!(join_all(creators), observer) };
    tokio::time::timeout(3 * RECONCILE_TIMEOUT, all).await.expect("the limit is used up");
    assert_eq!(count_within_the_limit(fixture, TENANT).await, MAX_CONFIG_MAPS);
}

/// Counts the objects of a tenant, and checks the amounts of its quotas.
pub(super) async fn count_within_the_limit(fixture: &Fixture, tenant: &str) -> usize {
    let quotas = quotas_within_the_limit(fixture, tenant).await;
    let count = config_maps(fixture, tenant).await.len();
    assert!(count <= MAX_CONFIG_MAPS, "{count}: {quotas:?}");
    count
}

/// Checks the amounts of the quotas of a tenant, with which admission compares, and returns the
/// quotas.
pub(super) async fn quotas_within_the_limit(fixture: &Fixture, tenant: &str) -> Vec<Value> {
    let quotas = fixture.objects_of(tenant, "api/v1/resourcequotas").await.unwrap();
    let granted =
        |quota: &Value| amount(&quota["spec"]["hard"]).max(amount(&quota["status"]["hard"]));
    let granted: usize = quotas.iter().map(granted).sum();
    assert!(granted <= MAX_CONFIG_MAPS, "{granted}: {quotas:?}");
    quotas
}

/// The number of ConfigMaps in the amounts of a quota; 0 if there is none.
pub(super) fn amount(amounts: &Value) -> usize {
    amounts["configmaps"].as_str().map_or(0, |amount| amount.parse().unwrap())
}

/// The ConfigMaps of a tenant. They are read in one list, which is a snapshot of all namespaces.
pub(super) async fn config_maps(fixture: &Fixture, tenant: &str) -> Vec<Value> {
    let path = format!("api/v1/configmaps?labelSelector=load%3D{tenant}");
    let (_, list) = fixture.cluster().admin(Method::GET, &path, None).await.unwrap();
    list["items"].as_array().unwrap().clone()
}

/// Creates a ConfigMap as a member. Returns its name, unless a quota refuses it.
pub(super) async fn create_config_map(
    fixture: &Fixture,
    token: &Credential,
    tenant: &str,
    namespace: &str,
) -> Option<String> {
    let path = format!("api/v1/namespaces/{namespace}/configmaps");
    let object = json!({"metadata": {"generateName": "load-", "labels": {"load": tenant}}});
    let created = fixture.cluster().send(token, Method::POST, &path, Some(&object)).await;
    let (status, answer) = created.unwrap();
    if status == StatusCode::CREATED {
        return Some(answer["metadata"]["name"].as_str().unwrap().to_owned());
    }
    // With 409 others changed the quota too often meanwhile.
    if status != StatusCode::CONFLICT {
        let text = answer["message"].as_str().unwrap_or_default();
        assert_eq!(status, StatusCode::FORBIDDEN, "{answer}");
        assert!(text.contains("exceeded quota: tenant-quota-0"), "{answer}");
    }
    None
}

/// Creates ConfigMaps in a namespace, in some from the beginning.
async fn fill(fixture: &Fixture, token: &Credential, namespace: &str, is_first: bool, load: &Load) {
    while !load.is_over.load(Ordering::SeqCst) {
        if is_first || load.is_everywhere.load(Ordering::SeqCst) {
            create_config_map(fixture, token, TENANT, namespace).await;
        } else {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}
