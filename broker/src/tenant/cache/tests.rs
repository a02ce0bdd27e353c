//! The cache, as the watches feed it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::DynamicObject;
use proptest::prelude::*;
use serde_json::{Value, json};
use tenant_shared::TENANT_LABEL;

use super::{contents::CacheSource, *};
use crate::{cluster::WatchEvent, tenant::ApiGroup};

const BROKER_GROUP: ApiGroup = ApiGroup::TenantBroker;
const CAPSULE: ApiGroup = ApiGroup::Capsule;

fn name(text: &str) -> TenantName {
    text.parse().unwrap()
}

/// An object that was created at this second, with this owner.
fn object(name: &str, created: u8, owner: &Value) -> DynamicObject {
    serde_json::from_value(json!({
        "apiVersion": "x/v1",
        "kind": "Tenant",
        "metadata": {"name": name, "creationTimestamp": format!("2026-01-02T03:04:{created:02}Z")},
        "spec": {"owners": [owner]},
    }))
    .unwrap()
}

fn user(name: &str) -> Value {
    json!({"kind": "User", "name": name})
}

fn person(user_name: &str, groups: &[&str]) -> RbacUser {
    RbacUser {
        user_name: Some(user_name.to_owned()),
        groups: groups.iter().map(|group| (*group).to_owned()).collect(),
    }
}

fn names(tenants: &[Arc<CachedTenant>]) -> Vec<&str> {
    tenants.iter().map(|cached| cached.tenant.name.as_str()).collect()
}

/// Passes a complete list.
fn list<T>(mut on_event: impl FnMut(WatchEvent<T>), objects: Vec<T>) {
    on_event(WatchEvent::Init);
    for object in objects {
        on_event(WatchEvent::Apply(object));
    }
    on_event(WatchEvent::InitDone);
}

fn namespace(name: &str, tenant: &str) -> ObjectMeta {
    let labels = [(TENANT_LABEL.to_owned(), tenant.to_owned())];
    ObjectMeta { name: Some(name.to_owned()), labels: Some(labels.into()), ..ObjectMeta::default() }
}

#[test]
fn a_cache_is_synced_once_every_watch_has_listed() {
    let cache = TenantCache::default();
    let mut ours = TenantReflector::new(cache.clone(), BROKER_GROUP);
    list(|event| ours.apply_event(&event), vec![object("solar", 1, &user("alice"))]);
    assert!(!cache.is_synced());
    NamespaceReflector::new(cache.clone()).apply_event(&WatchEvent::InitDone);
    assert!(!cache.is_synced(), "the other group is unknown");
    TenantReflector::new(cache.clone(), CAPSULE).not_served();
    assert!(cache.is_synced());
    ours.apply_event(&WatchEvent::Init);
    assert!(cache.is_synced(), "it was synced once");
    assert!(cache.tenant(&name("solar")).is_some(), "the new list is not complete");
}

/// A cache whose only Tenant is `lunar`, with this specification.
fn cache_of_lunar(spec: &Value) -> (TenantCache, TenantReflector) {
    let cache = TenantCache::default();
    let mut ours = TenantReflector::new(cache.clone(), BROKER_GROUP);
    TenantReflector::new(cache.clone(), CAPSULE).not_served();
    NamespaceReflector::new(cache.clone()).apply_event(&WatchEvent::InitDone);
    let mut lunar = object("lunar", 1, &user("alice"));
    lunar.data["spec"] = spec.clone();
    list(|event| ours.apply_event(&event), vec![lunar]);
    (cache, ours)
}

#[test]
fn only_accounts_of_the_namespace_itself_are_refused() {
    let owner = |kind: &str, name: &str| json!({"owners": [{"kind": kind, "name": name}]});
    let bound = |subject: Value| {
        let binding = json!({"clusterRoleName": "view", "subjects": [subject]});
        json!({"owners": [user("alice")], "additionalRoleBindings": [binding]})
    };
    let account =
        |namespace: &str| json!({"kind": "ServiceAccount", "namespace": namespace, "name": "x"});
    for (spec, is_refused) in [
        (owner("User", "solar-a"), false),
        (owner("ServiceAccount", "system:serviceaccount:solar-a:robot"), true),
        (owner("ServiceAccount", "system:serviceaccount:solar-ab:robot"), false),
        (owner("Group", "system:serviceaccounts:solar-a"), true),
        (owner("Group", "system:serviceaccounts:solar-ab"), false),
        (bound(account("solar-a")), true),
        (bound(account("solar-b")), false),
        (bound(json!({"kind": "Group", "name": "system:serviceaccounts:solar-a"})), true),
    ] {
        let (cache, mut ours) = cache_of_lunar(&spec);
        let checked = cache.check_accounts(&name("solar"), "solar-a");
        let refused = Err(AccountsError::NamedBy(vec![name("lunar")]));
        assert_eq!(checked, if is_refused { refused } else { Ok(()) }, "{spec}");
        assert_eq!(cache.check_accounts(&name("lunar"), "solar-a"), Ok(()), "its own: {spec}");
        ours.not_served();
        assert_eq!(cache.check_accounts(&name("solar"), "solar-a"), checked, "not closed: {spec}");
        cache.release_accounts(&[name("lunar")].into());
        assert_eq!(cache.check_accounts(&name("solar"), "solar-a"), checked, "not closed: {spec}");
        cache.release_accounts(&BTreeSet::new());
        assert_eq!(cache.check_accounts(&name("solar"), "solar-a"), Ok(()), "it is closed: {spec}");
        assert_eq!(cache.read().indexed(), 0, "{spec}");
    }
}

/// The bindings of the earlier form exist until then.
#[test]
fn accounts_that_a_tenant_does_not_name_any_more_are_refused_until_it_is_carried_out() {
    let account = json!({"kind": "ServiceAccount", "name": "system:serviceaccount:solar-a:robot"});
    let refused = Err(AccountsError::NamedBy(vec![name("lunar")]));
    for is_made_again in [false, true] {
        let (cache, mut ours) = cache_of_lunar(&json!({"owners": [account]}));
        let mut lunar = object("lunar", 1, &user("alice"));
        if is_made_again {
            ours.apply_event(&WatchEvent::Delete(lunar.clone()));
        }
        lunar.metadata.generation = Some(2);
        let failed = json!([{"type": "ApplyFailed", "status": "True"}]);
        for (status, expected) in [
            (json!(null), refused.clone()),
            (json!({"observedGeneration": 1}), refused.clone()),
            (json!({"observedGeneration": 2, "conditions": failed}), refused.clone()),
            (json!({"observedGeneration": 2}), Ok(())),
        ] {
            lunar.data["status"] = status.clone();
            ours.apply_event(&WatchEvent::Apply(lunar.clone()));
            let checked = cache.check_accounts(&name("solar"), "solar-a");
            assert_eq!(checked, expected, "{status} {is_made_again}");
        }
    }
}

/// Its bindings stay in force until it can be carried out again.
#[test]
fn accounts_of_a_tenant_that_breaks_rules_are_refused() {
    let account = json!({"kind": "ServiceAccount", "name": "system:serviceaccount:solar-a:robot"});
    let valid = json!({"owners": [account]});
    let (cache, mut ours) = cache_of_lunar(&valid);
    let refused = Err(AccountsError::NamedBy(vec![name("lunar")]));
    let mut lunar = object("lunar", 1, &user("alice"));
    let mut change = |spec: Value| {
        lunar.data["spec"] = spec;
        ours.apply_event(&WatchEvent::Apply(lunar.clone()));
    };
    let bound = json!({"kind": "ServiceAccount", "namespace": "solar-b", "name": "x"});
    change(json!({"owners": 1, "additionalRoleBindings": [{"subjects": [bound]}]}));
    assert!(cache.tenant(&name("lunar")).is_none());
    for namespace in ["solar-a", "solar-b"] {
        assert_eq!(cache.check_accounts(&name("solar"), namespace), refused, "{namespace}");
    }
    change(json!({"owners": [user("alice")]}));
    for namespace in ["solar-a", "solar-b"] {
        assert_eq!(cache.check_accounts(&name("solar"), namespace), Ok(()), "{namespace}");
    }
    // A process that began later knows the present form only.
    let (cache, _) = cache_of_lunar(&json!({"owners": [{"subjects": [account]}]}));
    assert!(cache.tenant(&name("lunar")).is_none());
    assert_eq!(cache.check_accounts(&name("solar"), "solar-a"), refused);
}

#[test]
fn a_cache_that_may_lack_tenants_allows_no_accounts() {
    let cache = TenantCache::default();
    let checked = |cache: &TenantCache| cache.check_accounts(&name("solar"), "solar-a");
    assert_eq!(checked(&cache), Err(AccountsError::NotSynced));
    let (cache, mut ours) = cache_of_lunar(&json!({"owners": [user("alice")]}));
    ours.interrupted();
    assert_eq!(checked(&cache), Ok(()), "for a moment");
    let minutes_ago = Instant::now().checked_sub(Duration::from_mins(2)).unwrap();
    cache.write().interrupt(CacheSource::Namespaces, minutes_ago);
    assert_eq!(checked(&cache), Err(AccountsError::NotSynced));
}

#[test]
fn of_two_groups_the_older_object_counts() {
    let cache = TenantCache::default();
    let (mut ours, mut capsule) = (
        TenantReflector::new(cache.clone(), BROKER_GROUP),
        TenantReflector::new(cache.clone(), CAPSULE),
    );
    let solar = name("solar");
    let group = || cache.tenant(&solar).map(|cached| cached.group);
    capsule.apply_event(&WatchEvent::Apply(object("solar", 2, &user("joe"))));
    assert_eq!(group(), Some(CAPSULE));
    let older = object("solar", 1, &user("alice"));
    ours.apply_event(&WatchEvent::Apply(older.clone()));
    assert_eq!(group(), Some(BROKER_GROUP));
    assert_eq!(names(&cache.naming(&person("alice", &[]))), ["solar"]);
    assert!(cache.naming(&person("joe", &[])).is_empty(), "the younger object gives nothing");
    ours.apply_event(&WatchEvent::Delete(older));
    assert_eq!(group(), Some(CAPSULE));
    assert_eq!(names(&cache.naming(&person("joe", &[]))), ["solar"]);
    // Of the same age the first group's.
    ours.apply_event(&WatchEvent::Apply(object("solar", 2, &user("alice"))));
    assert_eq!(group(), Some(BROKER_GROUP));
    ours.not_served();
    assert_eq!(group(), Some(CAPSULE));
    capsule.not_served();
    assert_eq!((group(), cache.has_object(&solar)), (None, false));
    assert_eq!(cache.read().indexed(), 0);
}

/// A run that relied on the copy of another object would not close the row of one that is gone.
#[test]
fn the_only_object_of_a_name_has_the_group_and_uid_of_its_row() {
    let cache = TenantCache::default();
    let (mut ours, mut capsule) = (
        TenantReflector::new(cache.clone(), BROKER_GROUP),
        TenantReflector::new(cache.clone(), CAPSULE),
    );
    let solar = name("solar");
    let with_uid = |uid: &str| {
        let mut object = object("solar", 1, &user("alice"));
        object.metadata.uid = Some(uid.to_owned());
        object
    };
    let is_only = |group, uid| cache.is_only_object(&solar, group, uid);
    list(|event| ours.apply_event(&event), vec![with_uid("1")]);
    NamespaceReflector::new(cache.clone()).apply_event(&WatchEvent::InitDone);
    assert!(!is_only(BROKER_GROUP, "1"), "the other group is unknown");
    capsule.not_served();
    assert!(is_only(BROKER_GROUP, "1"));
    assert!(!is_only(CAPSULE, "1"));
    assert!(!is_only(BROKER_GROUP, "2"), "it was made again");
    capsule.apply_event(&WatchEvent::Apply(with_uid("3")));
    assert!(!is_only(BROKER_GROUP, "1") && !is_only(CAPSULE, "3"), "there are two");
    ours.apply_event(&WatchEvent::Delete(with_uid("1")));
    assert!(!is_only(BROKER_GROUP, "1"));
    assert!(is_only(CAPSULE, "3"));
}

#[test]
fn a_list_replaces_what_vanished_meanwhile() {
    let cache = TenantCache::default();
    let (mut ours, mut capsule) = (
        TenantReflector::new(cache.clone(), BROKER_GROUP),
        TenantReflector::new(cache.clone(), CAPSULE),
    );
    let [lunar, solar, terra] =
        ["lunar", "solar", "terra"].map(|name| object(name, 1, &user("alice")));
    list(|event| ours.apply_event(&event), vec![lunar, solar.clone()]);
    list(|event| capsule.apply_event(&event), vec![terra]);
    assert_eq!(names(&cache.all()), ["lunar", "solar", "terra"]);
    // A list that fails changes nothing.
    ours.apply_event(&WatchEvent::Init);
    ours.apply_event(&WatchEvent::Apply(object("stellar", 1, &user("alice"))));
    assert_eq!(names(&cache.all()), ["lunar", "solar", "terra"]);
    list(|event| ours.apply_event(&event), vec![solar]);
    assert_eq!(names(&cache.all()), ["solar", "terra"]);
    assert_eq!(names(&cache.naming(&person("alice", &[]))), ["solar", "terra"]);
}

#[test]
fn tenants_are_found_by_user_and_group_of_owners_and_bindings() {
    let cache = TenantCache::default();
    let mut reflector = TenantReflector::new(cache.clone(), BROKER_GROUP);
    let mut solar = object("solar", 1, &user("alice"));
    let subjects = json!([user("joe"), {"kind": "Group", "name": "ops"}]);
    solar.data["spec"]["additionalRoleBindings"] =
        json!([{"clusterRoleName": "view", "subjects": subjects}]);
    let lunar = object("lunar", 1, &json!({"kind": "Group", "name": "ops"}));
    let robot = "system:serviceaccount:build:robot";
    let terra = object("terra", 1, &json!({"kind": "ServiceAccount", "name": robot}));
    list(|event| reflector.apply_event(&event), vec![solar, lunar, terra]);
    for (person, expected) in [
        (person("alice", &[]), &["solar"][..]),
        (person("joe", &["dev"]), &["solar"]),
        (person("joe", &["dev", "ops"]), &["lunar", "solar"]),
        (RbacUser { user_name: None, ..person("", &["ops"]) }, &["lunar", "solar"]),
        // A user is no group, and nobody is a ServiceAccount.
        (person("ops", &["alice", robot]), &[]),
        (person(robot, &[]), &[]),
    ] {
        assert_eq!(names(&cache.naming(&person)), expected, "{person:?}");
    }
    reflector.apply_event(&WatchEvent::Apply(object("solar", 1, &user("carol"))));
    assert!(cache.naming(&person("alice", &[])).is_empty(), "she is named no more");
    assert_eq!(names(&cache.naming(&person("carol", &[]))), ["solar"]);
}

#[test]
fn an_object_that_breaks_rules_is_no_tenant() {
    let cache = TenantCache::default();
    let mut reflector = TenantReflector::new(cache.clone(), BROKER_GROUP);
    let (solar, valid) = (name("solar"), object("solar", 1, &user("alice")));
    reflector.apply_event(&WatchEvent::Apply(valid.clone()));
    assert!(cache.tenant(&solar).is_some());
    let invalid = object("solar", 1, &user("system:admin"));
    reflector.apply_event(&WatchEvent::Apply(invalid.clone()));
    assert!(cache.tenant(&solar).is_none() && cache.all().is_empty());
    assert!(cache.naming(&person("alice", &[])).is_empty());
    assert!(cache.has_object(&solar));
    // The controller carries nothing of the younger object out either.
    let mut capsule = TenantReflector::new(cache.clone(), CAPSULE);
    capsule.apply_event(&WatchEvent::Apply(object("solar", 2, &user("joe"))));
    assert!(cache.tenant(&solar).is_none());
    reflector.apply_event(&WatchEvent::Apply(valid));
    assert_eq!(names(&cache.all()), ["solar"]);
    reflector.apply_event(&WatchEvent::Apply(object("tenant-x", 1, &user("alice"))));
    reflector.apply_event(&WatchEvent::Delete(object("tenant-x", 1, &user("alice"))));
    assert_eq!(names(&cache.all()), ["solar"], "the other one has no name of a tenant");
}

#[test]
fn the_status_is_kept_with_the_conditions_that_hold() {
    let cache = TenantCache::default();
    let mut reflector = TenantReflector::new(cache.clone(), BROKER_GROUP);
    let mut solar = object("solar", 1, &user("alice"));
    reflector.apply_event(&WatchEvent::Apply(solar.clone()));
    let cached = cache.tenant(&name("solar")).unwrap();
    assert_eq!((cached.state.as_str(), cached.size), ("", 0));
    assert!(cached.conditions.is_empty());
    let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "reason": "Any", "message": format!("of {kind}")});
    solar.data["status"] = json!({
        "state": "Degraded",
        "size": 7,
        "conditions": [
            condition("Ready", "True"), condition("UnknownTier", "True"), condition("Old", "False"),
        ],
    });
    reflector.apply_event(&WatchEvent::Apply(solar));
    let cached = cache.tenant(&name("solar")).unwrap();
    assert_eq!((cached.state.as_str(), cached.size), ("Degraded", 7));
    let conditions = cached.conditions.iter().map(|it| (it.kind.as_str(), it.message.as_str()));
    assert_eq!(conditions.collect::<Vec<_>>(), [("UnknownTier", "of UnknownTier")]);
}

#[test]
fn the_revision_grows_with_each_change_of_a_tenant_and_not_of_its_status() {
    let cache = TenantCache::default();
    let mut reflector = TenantReflector::new(cache.clone(), BROKER_GROUP);
    let grows = |reflector: &mut TenantReflector, event: WatchEvent<DynamicObject>| {
        let before = cache.revision();
        reflector.apply_event(&event);
        cache.revision() > before
    };
    let mut solar = object("solar", 1, &user("alice"));
    assert!(grows(&mut reflector, WatchEvent::Apply(solar.clone())));
    assert!(!grows(&mut reflector, WatchEvent::Apply(solar.clone())));
    solar.data["status"] = json!({"state": "Active", "size": 3});
    assert!(!grows(&mut reflector, WatchEvent::Apply(solar.clone())));
    solar.data["spec"]["nodeSelector"] = json!({"pool": "solar"});
    assert!(grows(&mut reflector, WatchEvent::Apply(solar.clone())));
    assert!(grows(&mut reflector, WatchEvent::Delete(solar.clone())));
    assert!(!grows(&mut reflector, WatchEvent::Delete(solar)));
}

#[test]
fn a_namespace_belongs_to_the_tenant_of_its_label() {
    let cache = TenantCache::default();
    let mut reflector = NamespaceReflector::new(cache.clone());
    let tenant = |namespace| cache.tenant_of_namespace(namespace).map(|name| name.to_string());
    let home = namespace("tenant-solar", "solar");
    list(
        |event| reflector.apply_event(&event),
        vec![home.clone(), namespace("solar-a", "solar"), namespace("odd", "kube-x")],
    );
    assert_eq!(tenant("tenant-solar").as_deref(), Some("solar"));
    assert_eq!(tenant("solar-a").as_deref(), Some("solar"));
    assert_eq!(tenant("odd"), None, "the label is no name of a tenant");
    reflector.apply_event(&WatchEvent::Apply(namespace("solar-b", "solar")));
    reflector.apply_event(&WatchEvent::Apply(namespace("solar-a", "lunar")));
    assert_eq!(tenant("solar-b").as_deref(), Some("solar"));
    assert_eq!(tenant("solar-a").as_deref(), Some("lunar"));
    reflector.apply_event(&WatchEvent::Apply(namespace("solar-a", "Lunar")));
    assert_eq!(tenant("solar-a"), None);
    reflector.apply_event(&WatchEvent::Delete(namespace("solar-b", "solar")));
    assert_eq!(tenant("solar-b"), None);
    list(|event| reflector.apply_event(&event), vec![namespace("solar-c", "solar")]);
    assert_eq!((tenant("tenant-solar"), tenant("solar-c").as_deref()), (None, Some("solar")));
}

const TENANTS: [&str; 3] = ["lunar", "solar", "terra"];
const USERS: [&str; 3] = ["alice", "joe", "system:invalid"];

/// An object of the model: name, second of its creation, and owner, as indexes.
type ModelObject = (usize, u8, usize);

#[derive(Clone, Debug)]
enum Call {
    Put(ModelObject),
    Remove(usize),
    List(Vec<ModelObject>),
}

fn call() -> impl Strategy<Value = (ApiGroup, Call)> {
    let object = || (0..TENANTS.len(), 0..3_u8, 0..USERS.len());
    let call = prop_oneof![
        3 => object().prop_map(Call::Put),
        1 => (0..TENANTS.len()).prop_map(Call::Remove),
        1 => proptest::collection::vec(object(), 0..4).prop_map(Call::List),
    ];
    (proptest::sample::select(ApiGroup::ALL.to_vec()), call)
}

/// Objects by name and group: second of creation, and owner.
type Model = BTreeMap<(usize, ApiGroup), (u8, usize)>;

/// Group and owner of the Tenant of a name.
fn expected(model: &Model, tenant: usize) -> Option<(ApiGroup, usize)> {
    let of_name = model.iter().filter(|((name, _), _)| *name == tenant);
    let ((_, group), (_, owner)) =
        of_name.min_by_key(|((_, group), (created, _))| (*created, *group))?;
    (!USERS[*owner].starts_with("system:")).then_some((*group, *owner))
}

proptest! {
    /// After any events the cache answers as a scan of the objects that exist.
    #[test]
    fn the_cache_answers_as_a_scan(calls in proptest::collection::vec(call(), 0..30)) {
        let cache = TenantCache::default();
        let mut reflectors: BTreeMap<ApiGroup, TenantReflector> =
            ApiGroup::ALL.map(|group| (group, TenantReflector::new(cache.clone(), group))).into();
        let mut model = Model::new();
        let live = |(tenant, created, owner): ModelObject| {
            object(TENANTS[tenant], created, &user(USERS[owner]))
        };
        for (group, call) in calls {
            let reflector = reflectors.get_mut(&group).unwrap();
            match call {
                Call::Put(object) => {
                    reflector.apply_event(&WatchEvent::Apply(live(object)));
                    model.insert((object.0, group), (object.1, object.2));
                }
                Call::Remove(tenant) => {
                    reflector.apply_event(&WatchEvent::Delete(live((tenant, 0, 0))));
                    model.remove(&(tenant, group));
                }
                Call::List(objects) => {
                    model.retain(|(_, of), _| *of != group);
                    model.extend(objects.iter().map(|it| ((it.0, group), (it.1, it.2))));
                    let objects: Vec<DynamicObject> = objects.into_iter().map(live).collect();
                    list(|event| reflector.apply_event(&event), objects);
                }
            }
            for (index, tenant) in TENANTS.iter().enumerate() {
                let cached = cache.tenant(&name(tenant)).map(|it| it.group);
                prop_assert_eq!(cached, expected(&model, index).map(|(group, _)| group));
            }
            for (index, user) in USERS.iter().enumerate() {
                let named: BTreeSet<&str> = TENANTS
                    .iter()
                    .enumerate()
                    .filter(|(at, _)| expected(&model, *at).is_some_and(|it| it.1 == index))
                    .map(|(_, tenant)| *tenant)
                    .collect();
                let cached = cache.naming(&person(user, &[]));
                prop_assert_eq!(names(&cached), named.into_iter().collect::<Vec<_>>());
            }
        }
    }
}

#[test]
fn an_interrupted_watch_is_known_until_it_has_listed_all_objects() {
    let cache = TenantCache::default();
    let mut tenants = TenantReflector::new(cache.clone(), ApiGroup::TenantBroker);
    let mut namespaces = NamespaceReflector::new(cache.clone());
    assert_eq!(cache.interrupted_since(), None);
    tenants.interrupted();
    let since = cache.interrupted_since().unwrap();
    namespaces.interrupted();
    tenants.interrupted();
    assert_eq!(cache.interrupted_since(), Some(since), "the first one counts");
    for event in [WatchEvent::Init, WatchEvent::InitDone] {
        tenants.apply_event(&event);
    }
    assert!(cache.interrupted_since().is_some_and(|at| at >= since));
    namespaces.apply_event(&WatchEvent::Init);
    assert!(cache.interrupted_since().is_some());
    namespaces.apply_event(&WatchEvent::InitDone);
    assert_eq!(cache.interrupted_since(), None);
    tenants.interrupted();
    tenants.not_served();
    assert_eq!(cache.interrupted_since(), None, "it has no objects");
}
