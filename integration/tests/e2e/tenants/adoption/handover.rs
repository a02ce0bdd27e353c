//! The objects of a namespace while it goes from one tenant to another, as the watches of the API
//! server show them: at no moment have both tenants a right, or one of them has it without limits.

use std::collections::BTreeMap;

use http::{Method, StatusCode};
use integration::fault_proxy::{Fault, Rule};
use integration::probe::{self, Probe};
use integration::process::Captured;
use serde_json::Value;

use super::{Fixture, builder, user};
use crate::tenants::reconcile::RECONCILE_TIMEOUT;

const NAMESPACE: &str = "solar-a";

/// The kinds that are watched, with their paths.
const KINDS: [(&str, &str); 3] = [
    ("RoleBinding", "/apis/rbac.authorization.k8s.io/v1/namespaces/solar-a/rolebindings"),
    ("ResourceQuota", "/api/v1/namespaces/solar-a/resourcequotas"),
    ("LimitRange", "/api/v1/namespaces/solar-a/limitranges"),
];

/// The events of a namespace since a moment, in the order in which the API server stored them.
struct Recorder {
    initial: Vec<Value>,
    watches: Vec<Captured>,
}

impl Recorder {
    async fn start(fixture: &Fixture) -> Self {
        let (mut initial, mut watches) = (Vec::new(), Vec::new());
        for (kind, path) in KINDS {
            let list = fixture.admin.run(["get", "--raw", path]).await.unwrap().success().unwrap();
            let list: Value = serde_json::from_str(&list.stdout).unwrap();
            let version = list["metadata"]["resourceVersion"].as_str().unwrap();
            let watch = format!("{path}?watch=1&resourceVersion={version}");
            watches.push(fixture.admin.spawn(["get", "--raw", &watch]).unwrap());
            for item in list["items"].as_array().unwrap() {
                let mut item = item.clone();
                item["kind"] = kind.into();
                initial.push(item);
            }
        }
        Self { initial, watches }
    }

    /// The events until now.
    fn events(&self) -> Vec<(u64, bool, Value)> {
        let mut events = Vec::new();
        for watch in &self.watches {
            // The last line may be incomplete.
            let text = watch.stdout().unwrap();
            for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
                let event: Value = serde_json::from_str(line).unwrap();
                let object = event["object"].clone();
                let version = object["metadata"]["resourceVersion"].as_str().unwrap();
                events.push((version.parse().unwrap(), event["type"] == "DELETED", object));
            }
        }
        events.sort_by_key(|(version, _, _)| *version);
        events
    }

    /// Checks each moment. Returns how often the rights went from one tenant to the other.
    fn check(&self) -> usize {
        let key =
            |object: &Value| (object["kind"].to_string(), object["metadata"]["name"].to_string());
        let mut live: BTreeMap<(String, String), Value> =
            self.initial.iter().map(|object| (key(object), object.clone())).collect();
        let (mut changes, mut last) = (0, tenant_with_rights(&live));
        for (_, is_deleted, object) in self.events() {
            if is_deleted {
                live.remove(&key(&object));
            } else {
                live.insert(key(&object), object);
            }
            let now = tenant_with_rights(&live);
            if let (Some(before), Some(now)) = (&last, &now)
                && before != now
            {
                changes += 1;
            }
            last = now.or(last);
        }
        changes
    }
}

/// The only tenant with a RoleBinding; its limits hold. There are limits at every moment.
fn tenant_with_rights(live: &BTreeMap<(String, String), Value>) -> Option<String> {
    let label =
        |object: &Value| object["metadata"]["labels"]["tenant-broker.io/tenant"].to_string();
    let of_kind =
        |kind: &str| live.values().filter(|object| object["kind"] == kind).collect::<Vec<&Value>>();
    let (quotas, ranges) = (of_kind("ResourceQuota"), of_kind("LimitRange"));
    assert!(!quotas.is_empty() && !ranges.is_empty(), "no limits: {live:#?}");
    let bindings = of_kind("RoleBinding");
    let ours = |binding: &&&Value| {
        binding["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("tenant-"))
    };
    let tenants: Vec<String> = bindings.iter().filter(ours).map(|it| label(it)).collect();
    let tenant = tenants.first()?.clone();
    assert!(tenants.iter().all(|other| *other == tenant), "rights of both: {live:#?}");
    let pods = if tenant.contains("solar") { "4" } else { "3" };
    let quota = quotas.iter().find(|it| it["metadata"]["name"] == "tenant-quota-0").unwrap();
    assert_eq!(label(quota), tenant, "{live:#?}");
    assert_eq!(quota["spec"]["hard"]["pods"], pods, "{live:#?}");
    assert_eq!(quota["status"]["hard"]["pods"], pods, "not enforced: {live:#?}");
    Some(tenant)
}

async fn transfer(fixture: &Fixture, to: &str) {
    let plan = fixture.announce(to, NAMESPACE).await;
    fixture.label(&plan).await;
}

#[tokio::test]
async fn at_no_moment_have_two_tenants_rights_or_one_without_limits() {
    let fixture = Fixture::start(builder()).await;
    fixture.namespace_of("solar", NAMESPACE, "alice").await;
    fixture.until_moved("solar", NAMESPACE).await;
    let recorder = Recorder::start(&fixture).await;
    for (to, owner) in [("lunar", "carol"), ("solar", "alice"), ("lunar", "carol")] {
        transfer(&fixture, to).await;
        fixture.until_bound(to, NAMESPACE, "admin", Some(owner)).await;
        fixture.until_moved(to, NAMESPACE).await;
    }
    assert_eq!(recorder.check(), 3);
}

/// The next attempt does not find the RoleBindings that the first one deleted.
#[tokio::test]
async fn bindings_that_an_incomplete_move_deletes_are_on_record() {
    let fixture = Fixture::start(builder().fault_proxy()).await;
    fixture.namespace_of("solar", NAMESPACE, "alice").await;
    for name in ["made-by-owner", "stuck"] {
        fixture.bind(NAMESPACE, name, user("bob")).await;
    }
    let stuck = Rule::new(Fault::respond(StatusCode::FORBIDDEN))
        .when(|sent| sent.is(&Method::DELETE, "/rolebindings/stuck"));
    fixture.world.proxy().unwrap().add(stuck);
    let plan = fixture.announce("lunar", NAMESPACE).await;
    fixture.label(&plan).await;
    probe::until("the row of the incomplete move", RECONCILE_TIMEOUT, || async {
        let reasons = fixture.reasons("NamespaceMoved").await;
        let is_there = reasons.iter().any(|reason| {
            reason.contains("did not go to tenant lunar yet")
                && reason.contains("\"made-by-owner\"")
                && !reason.contains("\"stuck\"")
        });
        Ok(if is_there { Probe::Ready(()) } else { Probe::NotYet(format!("{reasons:?}")) })
    })
    .await
    .unwrap();
    fixture.world.proxy().unwrap().clear();
    fixture.until_moved("lunar", NAMESPACE).await;
    let reasons = fixture.reasons("NamespaceMoved").await;
    let went = reasons.iter().find(|it| it.contains("went to tenant lunar")).unwrap();
    assert!(went.contains("\"stuck\"") && !went.contains("\"made-by-owner\""), "{went}");
}
