//! The objects of a namespace while it goes from one tenant to another, as the watches of the API
//! server show them: at no moment have both tenants a right, or one of them has it without limits.

use std::collections::BTreeMap;
use std::time::Duration;

use integration::process::Captured;
use serde_json::Value;

use super::{Scene, builder};

const NAMESPACE: &str = "solar-a";
/// Rounds with a replica that is killed. Each ends with a whole state.
const ROUNDS: usize = 12;

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
    async fn start(scene: &Scene) -> Self {
        let (mut initial, mut watches) = (Vec::new(), Vec::new());
        for (kind, path) in KINDS {
            let list: Value = scene.admin.json(["get", "--raw", path]).await.unwrap();
            let version = list["metadata"]["resourceVersion"].as_str().unwrap();
            let watch = format!("{path}?watch=1&resourceVersion={version}");
            watches.push(scene.admin.spawn(["get", "--raw", &watch]).unwrap());
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

async fn transfer(scene: &Scene, to: &str) {
    let plan = scene.announce(to, NAMESPACE).await;
    scene.label(&plan).await;
}

#[tokio::test]
async fn at_no_moment_have_two_tenants_rights_or_one_without_limits() {
    let scene = Scene::start(builder()).await;
    scene.namespace_of("solar", NAMESPACE, "alice").await;
    scene.until_moved("solar", NAMESPACE).await;
    let recorder = Recorder::start(&scene).await;
    for (to, owner) in [("lunar", "carol"), ("solar", "alice"), ("lunar", "carol")] {
        transfer(&scene, to).await;
        scene.until_bound(to, NAMESPACE, "admin", Some(owner)).await;
        scene.until_moved(to, NAMESPACE).await;
    }
    assert_eq!(recorder.check(), 3);
}

#[tokio::test]
async fn a_replica_that_is_killed_leaves_a_whole_state() {
    let scene = Scene::start(builder().postgres().replicas(2)).await;
    scene.namespace_of("solar", NAMESPACE, "alice").await;
    scene.until_moved("solar", NAMESPACE).await;
    let recorder = Recorder::start(&scene).await;
    for round in 0..ROUNDS {
        let (to, owner) = if round % 2 == 0 { ("lunar", "carol") } else { ("solar", "alice") };
        let plan = scene.announce(to, NAMESPACE).await;
        let [number] = integration::random::bytes(1).unwrap()[..] else { unreachable!() };
        let labelled = scene.label(&plan);
        let killed = async {
            tokio::time::sleep(Duration::from_millis(2 * u64::from(number))).await;
            // The second one stays, unless both are killed.
            if round % 3 != 1 {
                scene.world.brokers()[0].kill();
            }
            if round % 3 != 0 {
                scene.world.brokers()[1].kill();
            }
        };
        tokio::join!(labelled, killed);
        for (index, broker) in scene.world.brokers().iter().enumerate() {
            let was_killed = round % 3 == 2 || (round % 3 == 0) == (index == 0);
            if was_killed {
                broker.crash_and_restart().await.unwrap();
            }
        }
        scene.until_bound(to, NAMESPACE, "admin", Some(owner)).await;
        scene.until_moved(to, NAMESPACE).await;
        let other = if to == "lunar" { "solar" } else { "lunar" };
        scene.until_bound(other, NAMESPACE, "admin", None).await;
    }
    assert_eq!(recorder.check(), ROUNDS);
}
