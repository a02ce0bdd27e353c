//! The REST interface of tenants: what owners, other members, administrators and machines may do, and
//! the codes of refusals.

use futures_util::future::join_all;
use http::{Method, StatusCode};
use integration::api::Api;
use integration::http_client::http_client;
use integration::kubectl::Kubectl;
use integration::person::Person;
use integration::probe::{self, Probe};
use integration::world::World;
use secrecy::SecretString;
use serde_json::{Value, json};
use tenant_shared::{
    ApplyTenantRequest, Code, CreateTenantRequest, StepResult, SuspendRequest, TenantInfo,
};
use uuid::Uuid;

use super::reconcile::{RECONCILE_TIMEOUT, world};
use super::{TENANT_BROKER, until_served, with_object};
use crate::machines::{AUDIENCE, accept_builder, account_token, exchange};
use crate::refused;

pub(super) const SOLAR: &str = "solar";
const LUNAR: &str = "lunar";
const PRODUCTION: &str = "solar-production";
const VIEWER: &str = "bob@example.com";

/// Applies a Tenant with these owners and their roles. [`VIEWER`] may look at its namespaces.
pub(super) async fn apply(admin: &Kubectl, name: &str, quota: u32, owners: &[(&str, &[&str])]) {
    let owners: Vec<Value> = owners
        .iter()
        .map(|(name, roles)| json!({"kind": "User", "name": name, "clusterRoles": roles}))
        .collect();
    let viewer = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": VIEWER});
    let object = json!({
        "apiVersion": TENANT_BROKER.1,
        "kind": "Tenant",
        "metadata": {"name": name},
        "spec": {
            "owners": owners,
            "additionalRoleBindings": [{"clusterRoleName": "view", "subjects": [viewer]}],
            "namespaceOptions": {"quota": quota},
        },
    });
    with_object(admin, &["apply"], object.to_string()).await.success().unwrap();
}

/// Waits until the broker has carried out a Tenant, and lists it as active.
pub(super) async fn until_active(api: &Api, name: &str) {
    probe::until("the tenant to be active", RECONCILE_TIMEOUT, || async {
        Ok(match api.tenant(name).await {
            Ok(tenant) if tenant.state == "Active" => Probe::Ready(()),
            other => Probe::NotYet(format!("{other:?}")),
        })
    })
    .await
    .unwrap();
}

/// Two tenants: alice owns both, vera owns solar with the role `view`, and bob looks at both.
struct Fixture {
    world: World,
    alice: Person,
    owner: Api,
    view_only_owner: Api,
    viewer: Api,
    stranger: Api,
    operator: Api,
}

impl Fixture {
    async fn start() -> Self {
        let world = world().await;
        let admin = world.admin_kubectl().unwrap();
        until_served(&admin, TENANT_BROKER).await;
        let signed_in = async |name: &str| world.person(name).await.unwrap().api().await.unwrap();
        let alice = world.person("alice").await.unwrap();
        let owner = alice.api().await.unwrap();
        let roles: &[&str] = &["admin", "tenant-namespace-deleter"];
        let owners: [(&str, &[&str]); 2] =
            [(alice.email(), roles), ("vera@example.com", &["view"])];
        apply(&admin, SOLAR, 3, &owners).await;
        apply(&admin, LUNAR, 5, &owners[..1]).await;
        until_active(&owner, SOLAR).await;
        until_active(&owner, LUNAR).await;
        let view_only_owner = signed_in("vera").await;
        let viewer = signed_in("bob").await;
        let stranger = signed_in("mallory").await;
        let operator = world.administrator("operator").await.unwrap().api().await.unwrap();
        Self { world, alice, owner, view_only_owner, viewer, stranger, operator }
    }

    /// The membership of the first owner in solar.
    async fn membership(&self) -> Uuid {
        self.owner.tenant(SOLAR).await.unwrap().workspace.unwrap()
    }
}

/// Uses a token of a member at the API server: the status of a request for ConfigMaps.
async fn config_maps(world: &World, method: Method, namespace: &str, token: &str) -> StatusCode {
    let http = http_client(Some(world.cluster().authority().certificate())).unwrap();
    let path = format!("api/v1/namespaces/{namespace}/configmaps");
    let url = world.cluster().url().join(&path).unwrap();
    let request = http.request(method.clone(), url).bearer_auth(token);
    let config_map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "test-"},
    });
    let request = if method == Method::POST { request.json(&config_map) } else { request };
    request.send().await.unwrap().status()
}

/// Waits until a broker has logged that the rights in a new namespace may not be in force yet. It does so
/// before it answers, if the API server does not grant them in time; else they are in force.
pub(super) async fn until_rights_are_late(world: &World, namespace: &str) {
    let says_so = |line: &str| {
        let mut words = line.split(|it: char| !it.is_ascii_alphanumeric() && it != '-');
        line.contains("rights in a new namespace may not be in force yet")
            && words.any(|word| word == namespace)
    };
    probe::until("the line about rights that are late", RECONCILE_TIMEOUT, || async {
        for broker in world.brokers() {
            if broker.log()?.lines().any(says_so) {
                return Ok(Probe::Ready(()));
            }
        }
        Ok(Probe::NotYet(format!("there is none about {namespace}")))
    })
    .await
    .unwrap();
}

/// Checks that its creator may do something in a namespace once its creation was acknowledged. If the
/// broker has logged that the API server is late, they may a moment later.
async fn is_allowed_at_once(world: &World, method: &Method, namespace: &str, token: &str) {
    if config_maps(world, method.clone(), namespace, token).await.is_success() {
        return;
    }
    until_rights_are_late(world, namespace).await;
    probe::until("the rights of the creator", RECONCILE_TIMEOUT, || async {
        let status = config_maps(world, method.clone(), namespace, token).await;
        Ok(if status.is_success() { Probe::Ready(()) } else { Probe::NotYet(status.to_string()) })
    })
    .await
    .unwrap();
}

fn names(tenants: &[TenantInfo]) -> Vec<&str> {
    tenants.iter().map(|tenant| tenant.name.as_str()).collect()
}

fn role_names(tenant: &TenantInfo) -> Vec<&str> {
    tenant.roles.iter().map(|role| role.cluster_role.as_str()).collect()
}

#[tokio::test]
async fn owners_members_administrators_and_machines_use_tenants() {
    let fixture = Fixture::start().await;
    an_owner_joins_and_uses_a_new_namespace_at_once(&fixture).await;
    an_owner_with_the_role_view_creates_a_namespace(&fixture).await;
    a_viewer_is_no_owner(&fixture).await;
    refusals_have_codes_and_say_what_to_do(&fixture).await;
    an_unknown_tenant_is_not_told_from_one_of_others(&fixture).await;
    an_administrator_sees_all_tenants(&fixture).await;
    tenants_are_not_written_without_the_setting(&fixture).await;
    a_machine_reads_the_tenant_of_its_membership_only(&fixture).await;
    a_suspended_tenant_is_of_no_use_until_it_is_resumed(&fixture).await;
}

async fn an_owner_joins_and_uses_a_new_namespace_at_once(fixture: &Fixture) {
    let api = &fixture.owner;
    let listed = api.tenants().await.unwrap().items;
    assert_eq!(names(&listed), [LUNAR, SOLAR]);
    let solar = &listed[1];
    assert!(solar.is_owner && solar.workspace.is_none(), "{solar:?}");
    assert_eq!((solar.api_group.as_str(), solar.namespace_count), ("tenant-broker.io", 0));
    assert_eq!(solar.namespace_quota, Some(3));
    assert_eq!(role_names(solar), ["admin", "tenant-namespace-deleter"]);
    // A list makes no memberships.
    assert!(api.workspaces(false).await.unwrap().items.is_empty());

    let (membership, is_new) = api.join_tenant(SOLAR).await.unwrap();
    assert!(is_new, "{membership:?}");
    assert_eq!(membership.namespace, "tenant-solar");
    assert_eq!(membership.tenant.as_deref(), Some(SOLAR));
    let (again, is_new) = api.join_tenant(SOLAR).await.unwrap();
    assert_eq!((again.id, is_new), (membership.id, false));
    assert_eq!(fixture.membership().await, membership.id);

    let made = api.create_tenant_namespace(SOLAR, PRODUCTION).await.unwrap();
    assert_eq!((made.name.as_str(), made.status.as_str()), (PRODUCTION, "active"));
    assert_eq!(made.made_by, Some(fixture.alice.id()));
    let token = api.credential(membership.id).await.unwrap().token;
    is_allowed_at_once(&fixture.world, &Method::POST, PRODUCTION, &token).await;
    let listed = api.tenant_namespaces(SOLAR).await.unwrap();
    assert_eq!(listed.quota, Some(3));
    let [namespace] = listed.items.as_slice() else { panic!("{listed:?}") };
    assert_eq!((namespace.name.as_str(), namespace.made_by), (PRODUCTION, made.made_by));
}

/// Ownership decides on namespaces, and not the ClusterRoles of the owner.
async fn an_owner_with_the_role_view_creates_a_namespace(fixture: &Fixture) {
    let api = &fixture.view_only_owner;
    let listed = api.tenants().await.unwrap().items;
    assert_eq!(names(&listed), [SOLAR]);
    assert_eq!((listed[0].is_owner, role_names(&listed[0])), (true, vec!["view"]));
    // The creation makes a member.
    api.create_tenant_namespace(SOLAR, "solar-vera").await.unwrap();
    let membership = api.tenant(SOLAR).await.unwrap().workspace.unwrap();
    let token = api.credential(membership).await.unwrap().token;
    is_allowed_at_once(&fixture.world, &Method::GET, "solar-vera", &token).await;
    let status = config_maps(&fixture.world, Method::POST, "solar-vera", &token).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
}

async fn a_viewer_is_no_owner(fixture: &Fixture) {
    let api = &fixture.viewer;
    let listed = api.tenants().await.unwrap().items;
    assert_eq!(names(&listed), [LUNAR, SOLAR]);
    assert!(listed.iter().all(|tenant| !tenant.is_owner), "{listed:?}");
    assert_eq!(role_names(&listed[1]), ["view"]);
    assert_eq!(api.tenant_namespaces(SOLAR).await.unwrap().items.len(), 2);
    let created = refused(api.create_tenant_namespace(SOLAR, "solar-bob").await);
    assert_eq!((created.status, created.code()), (StatusCode::FORBIDDEN, Code::NotTenantOwner));
    let members = refused(api.tenant_members(SOLAR).await);
    assert_eq!((members.status, members.code()), (StatusCode::FORBIDDEN, Code::NotTenantOwner));
}

async fn refusals_have_codes_and_say_what_to_do(fixture: &Fixture) {
    let api = &fixture.owner;
    for (name, status, code, text) in [
        (
            "lunar-x",
            400,
            Code::InvalidRequest,
            "namespace names of tenant solar begin with solar-; choose such a name",
        ),
        ("solar-X", 400, Code::InvalidRequest, "lower case"),
        (PRODUCTION, 409, Code::NamespaceExists, PRODUCTION),
    ] {
        let refusal = refused(api.create_tenant_namespace(SOLAR, name).await);
        assert_eq!((refusal.status.as_u16(), refusal.code()), (status, code), "{refusal}");
        assert!(refusal.body.contains(text), "{refusal}");
    }
    let path = "tenants/solar/namespaces";
    for body in [json!({}), json!({"name": "solar-x", "label": {}}), json!({"name": ""})] {
        let request = api.request(Method::POST, path).unwrap().json(&body);
        assert_eq!(request.send().await.unwrap().status(), StatusCode::BAD_REQUEST, "{body}");
    }
    // None of the refused ones counts.
    api.create_tenant_namespace(SOLAR, "solar-third").await.unwrap();
    let full = refused(api.create_tenant_namespace(SOLAR, "solar-fourth").await);
    assert_eq!((full.status, full.code()), (StatusCode::FORBIDDEN, Code::NamespaceQuotaExceeded));
    let text = "exceeded namespace quota: tenant solar has 3 of 3; delete a namespace, or ask an \
                administrator";
    assert!(full.body.contains(text), "{full}");
    let fourth = crate::object(&fixture.world, &["namespace", "solar-fourth"]).await.unwrap();
    assert_eq!(fourth, None);
}

async fn an_unknown_tenant_is_not_told_from_one_of_others(fixture: &Fixture) {
    let api = &fixture.stranger;
    assert!(api.tenants().await.unwrap().items.is_empty());
    let details = async |tenant: &str| {
        let refusals = [
            refused(api.tenant(tenant).await),
            refused(api.tenant_members(tenant).await),
            refused(api.tenant_namespaces(tenant).await),
            refused(api.join_tenant(tenant).await),
            refused(api.create_tenant_namespace(tenant, "solar-x").await),
        ];
        refusals.map(|refusal| {
            assert_eq!((refusal.status, refusal.code()), (StatusCode::NOT_FOUND, Code::NotFound));
            refusal.problem.unwrap().detail
        })
    };
    let theirs = details(SOLAR).await;
    assert_eq!(theirs, details("stellar").await);
    // No tenant can have this name.
    assert_eq!(theirs, details("Solar%21").await);
}

async fn an_administrator_sees_all_tenants(fixture: &Fixture) {
    let api = &fixture.operator;
    let listed = api.tenants().await.unwrap().items;
    assert_eq!(names(&listed), [LUNAR, SOLAR]);
    assert!(listed.iter().all(|it| !it.is_owner && it.roles.is_empty()), "{listed:?}");
    let members = api.tenant_members(SOLAR).await.unwrap().items;
    let members: Vec<(&str, bool)> =
        members.iter().map(|member| (member.email.as_str(), member.is_owner)).collect();
    assert_eq!(members, [("alice@example.com", true), ("vera@example.com", true)]);
}

async fn tenants_are_not_written_without_the_setting(fixture: &Fixture) {
    let read = fixture.operator.tenant_spec(SOLAR).await.unwrap();
    let create =
        CreateTenantRequest { name: "stellar".to_owned(), spec: read.spec.clone(), reason: None };
    let apply = ApplyTenantRequest { spec: read.spec, ..ApplyTenantRequest::default() };
    for (api, text) in [(&fixture.operator, "tenants.write"), (&fixture.owner, "administrator")] {
        for refusal in [
            refused(api.create_tenant(&create, "").await),
            refused(api.create_tenant(&create, "dry_run=true").await),
            refused(api.apply_tenant(SOLAR, &apply, "").await),
            refused(api.delete_tenant(SOLAR, "namespaces=keep").await),
        ] {
            assert_eq!((refusal.status, refusal.code()), (StatusCode::FORBIDDEN, Code::Forbidden));
            assert!(refusal.body.contains(text), "{refusal}");
        }
    }
}

async fn a_machine_reads_the_tenant_of_its_membership_only(fixture: &Fixture) {
    let membership = fixture.membership().await.to_string();
    accept_builder(&fixture.world, "default", &membership).await;
    let token = account_token(&fixture.world, "default", "builder", AUDIENCE).await;
    let (status, answer) = exchange(&fixture.world, &membership, &token).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let token = SecretString::from(answer["access_token"].as_str().unwrap().to_owned());
    let machine = fixture.world.anonymous_api().unwrap().with_token(token);
    // The broker was restarted, and reads the Tenants again.
    until_active(&machine, SOLAR).await;
    assert_eq!(names(&machine.tenants().await.unwrap().items), [SOLAR]);
    assert_eq!(machine.tenant_namespaces(SOLAR).await.unwrap().items.len(), 3);
    assert_eq!(refused(machine.tenant(LUNAR).await).code(), Code::NotFound);
    assert_eq!(refused(machine.tenant_members(SOLAR).await).code(), Code::Forbidden);
    assert_eq!(refused(machine.tenant_spec(SOLAR).await).code(), Code::Forbidden);
    assert_eq!(refused(machine.delete_tenant(SOLAR, "").await).code(), Code::Forbidden);
    assert_eq!(refused(machine.join_tenant(SOLAR).await).code(), Code::Forbidden);
    let created = machine.create_tenant_namespace(SOLAR, "solar-machine").await;
    assert_eq!(refused(created).code(), Code::Forbidden);
    let suspended = machine.suspend_tenant(SOLAR, &SuspendRequest::default()).await;
    assert_eq!(refused(suspended).code(), Code::Forbidden);
}

async fn a_suspended_tenant_is_of_no_use_until_it_is_resumed(fixture: &Fixture) {
    let (owner, operator) = (&fixture.owner, &fixture.operator);
    let membership = fixture.membership().await;
    let token = owner.credential(membership).await.unwrap().token;
    let reason = SuspendRequest { reason: Some("leaked laptop".to_owned()) };
    let refusal = refused(owner.suspend_tenant(SOLAR, &reason).await);
    assert_eq!((refusal.status, refusal.code()), (StatusCode::FORBIDDEN, Code::Forbidden));
    let unknown = refused(operator.suspend_tenant("stellar", &reason).await);
    assert_eq!(unknown.code(), Code::NotFound);

    probe::until("the suspension", RECONCILE_TIMEOUT, || async {
        let suspension = operator.suspend_tenant(SOLAR, &reason).await?;
        let is_done = suspension.steps.iter().all(|step| step.result == StepResult::Done);
        let is_suspended = is_done && suspension.state == "Suspended";
        Ok(if is_suspended { Probe::Ready(()) } else { Probe::NotYet(format!("{suspension:?}")) })
    })
    .await
    .unwrap();
    let created = refused(owner.create_tenant_namespace(SOLAR, "solar-fourth").await);
    assert_eq!((created.status, created.code()), (StatusCode::CONFLICT, Code::TenantNotActive));
    assert_eq!(refused(owner.credential(membership).await).status, StatusCode::CONFLICT);
    // The API server's copies of labels and bindings may lag for some milliseconds.
    probe::until("the API server's refusal", RECONCILE_TIMEOUT, || async {
        let status = config_maps(&fixture.world, Method::POST, PRODUCTION, &token).await;
        let is_refused = [StatusCode::FORBIDDEN, StatusCode::UNAUTHORIZED].contains(&status);
        Ok(if is_refused { Probe::Ready(()) } else { Probe::NotYet(status.to_string()) })
    })
    .await
    .unwrap();

    probe::until("the resumption", RECONCILE_TIMEOUT, || async {
        Ok(match operator.resume_tenant(SOLAR, &SuspendRequest::default()).await {
            Ok(resumed) if resumed.state == "Active" => Probe::Ready(()),
            other => Probe::NotYet(format!("{other:?}")),
        })
    })
    .await
    .unwrap();
    probe::until("the rights of the owner", RECONCILE_TIMEOUT, || async {
        let credential = match owner.credential(membership).await {
            Ok(credential) => credential,
            Err(error) => return Ok(Probe::NotYet(error.to_string())),
        };
        let status = config_maps(&fixture.world, Method::POST, PRODUCTION, &credential.token).await;
        let is_created = status == StatusCode::CREATED;
        Ok(if is_created { Probe::Ready(()) } else { Probe::NotYet(status.to_string()) })
    })
    .await
    .unwrap();
    let old = config_maps(&fixture.world, Method::GET, PRODUCTION, &token).await;
    assert_eq!(old, StatusCode::UNAUTHORIZED, "a token from before the suspension");

    let entries = operator.audit_logs("action=SuspendTenant&limit=100").await.unwrap().items;
    let count = |outcome: &str| entries.iter().filter(|entry| entry.outcome == outcome).count();
    assert_eq!((count("success"), count("refused")), (1, 1), "{entries:?}");
}

#[tokio::test]
async fn creations_at_once_on_two_replicas_never_exceed_the_quota() {
    let builder = World::builder().own_control_plane().installed("tenants.enabled", true);
    let world = builder.postgres().replicas(2).start().await.unwrap();
    let admin = world.admin_kubectl().unwrap();
    until_served(&admin, TENANT_BROKER).await;
    let alice = world.person("alice").await.unwrap();
    apply(&admin, SOLAR, 5, &[(alice.email(), &["admin"])]).await;
    let api = alice.api().await.unwrap();
    let apis = [api.clone(), api.at(&world.brokers()[1].url().unwrap()).unwrap()];
    for api in &apis {
        until_active(api, SOLAR).await;
    }
    let (_, is_new) = apis[0].join_tenant(SOLAR).await.unwrap();
    assert!(is_new);

    let creations = (0..20).map(|number: usize| {
        let api = &apis[number % apis.len()];
        async move { api.create_tenant_namespace(SOLAR, &format!("solar-{number}")).await }
    });
    let (made, others): (Vec<_>, Vec<_>) =
        join_all(creations).await.into_iter().partition(Result::is_ok);
    assert_eq!(made.len(), 5, "{others:?}");
    for other in others {
        let full = refused(other);
        assert_eq!(full.code(), Code::NamespaceQuotaExceeded, "{full}");
        assert!(full.body.contains("tenant solar has 5 of 5"), "{full}");
    }
    let listed = apis[1].tenant_namespaces(SOLAR).await.unwrap();
    assert_eq!(listed.items.len(), 5, "{listed:?}");
    let selector = "tenant-broker.io/tenant=solar,!tenant-broker.io/home";
    let exist = crate::object_list(&world, &["namespaces", "-l", selector]).await.unwrap();
    assert_eq!(exist.len(), 5, "{exist:?}");
}

#[tokio::test]
async fn a_broker_without_tenants_says_so() {
    let world = World::builder().start().await.unwrap();
    let api = world.person("alice").await.unwrap().api().await.unwrap();
    for refusal in [refused(api.tenants().await), refused(api.join_tenant(SOLAR).await)] {
        assert_eq!((refusal.status, refusal.code()), (StatusCode::NOT_FOUND, Code::NotFound));
        assert!(refusal.body.contains("tenants.enabled"), "{refusal}");
    }
}
