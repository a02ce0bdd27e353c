//! Two tenants with a namespace each, their people and programs, and people of no tenant.

use http::{Method, StatusCode};
use integration::acceptance::tenants::{Credential, Fixture, RECONCILE_TIMEOUT, SignedIn};
use integration::probe::{self, Probe};
use integration::world::World;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use super::{OTHER, OWN, PLAIN, RBAC};
use crate::tenants::cluster::{account, role_binding, user};

/// Everybody who signs in is in this group, whose people may be members of tenants.
pub(super) const ELIGIBLE: &str = "projectcapsule.dev";
/// A ServiceAccount in [`OWNERS`] owns solar; others have the same name in other namespaces.
const ROBOT: &str = "robot";
const OWNERS: &str = "robots";
const OTHERS: &str = "others";

/// Tenant `solar` is that of alice; vera owns it with the role `view`, and bob has the role `admin` in it
/// and does not own it. Tenant `lunar` is carol's. No Tenant names eve.
pub(super) struct TwoTenants {
    pub(super) fixture: Fixture,
    pub(super) alice: Member,
    pub(super) vera: Member,
    pub(super) bob: Member,
    pub(super) carol: Member,
    pub(super) eve: SignedIn,
    /// Token of a pod in [`OWN`] whose ServiceAccount has the role `admin` there.
    pub(super) pod_token: String,
    /// Token of the ServiceAccount that owns solar.
    pub(super) owner_token: String,
    /// Token of a ServiceAccount with its name, which may create namespaces as well.
    pub(super) namesake_token: String,
}

/// A member of a tenant, with the name and a token of their ServiceAccount.
pub(super) struct Member {
    pub(super) person: SignedIn,
    pub(super) account: String,
    pub(super) token: String,
}

impl TwoTenants {
    pub(super) async fn start() -> Self {
        let builder = World::builder()
            .installed("tenants.direct_namespaces", true)
            .installed("tenants.groups", ELIGIBLE)
            .setting("drift_seconds", 3600)
            .setting("tiers.basic.gateway_requests_per_second", 1000);
        let fixture = Fixture::start(builder).await.unwrap();
        let eve = fixture.person("eve").await.unwrap();
        let robot = format!("system:serviceaccount:{OWNERS}:{ROBOT}");
        let limits = json!([{"type": "Container", "default": {"memory": "64Mi"}}]);
        let solar = json!({
            "owners": [
                {"kind": "User", "name": "alice@example.com"},
                {"kind": "User", "name": "vera@example.com", "clusterRoles": ["view"]},
                {"kind": "User", "name": "dora@example.com"},
                {"kind": "User", "name": "erin@example.com"},
                {"kind": "User", "name": "frank@example.com"},
                {"kind": "ServiceAccount", "name": robot},
            ],
            "additionalRoleBindings": [
                {"clusterRoleName": "admin", "subjects": [user("bob@example.com")]},
            ],
            "namespaceOptions": {"quota": 3},
            "resourceQuotas": {"scope": "Namespace", "items": [{"hard": {"pods": "10"}}]},
            "limitRanges": {"items": [{"limits": limits}]},
        });
        fixture.apply("solar", &solar).await.unwrap();
        let lunar = json!({"owners": [{"kind": "User", "name": "carol@example.com"}]});
        fixture.apply("lunar", &lunar).await.unwrap();
        let alice = Member::of(&fixture, "alice", "solar").await;
        let vera = Member::of(&fixture, "vera", "solar").await;
        let bob = Member::of(&fixture, "bob", "solar").await;
        let carol = Member::of(&fixture, "carol", "lunar").await;
        alice.person.at(0).create_tenant_namespace("solar", OWN).await.unwrap();
        carol.person.at(0).create_tenant_namespace("lunar", OTHER).await.unwrap();
        let (owner_token, namesake_token) = other_namespaces(&fixture).await;
        let pod_token = program(&fixture, &alice).await;
        let tenants =
            Self { fixture, alice, vera, bob, carol, eve, pod_token, owner_token, namesake_token };
        tenants.until_carried_out().await;
        tenants
    }

    /// Waits until the broker writes nothing more.
    async fn until_carried_out(&self) {
        let (alice, vera, bob) = (&self.alice.account, &self.vera.account, &self.bob.account);
        for (namespace, binding, accounts) in [
            ("tenant-solar", "tenant-solar-tenant-owner", &[alice, vera][..]),
            (OWN, "tenant-solar-admin", &[alice, bob]),
            (OWN, "tenant-solar-view", &[vera]),
            ("tenant-lunar", "tenant-lunar-tenant-owner", &[&self.carol.account]),
            (OTHER, "tenant-lunar-admin", &[&self.carol.account]),
        ] {
            let path = format!("{RBAC}/namespaces/{namespace}/rolebindings/{binding}");
            until(&self.fixture, &path, |object| {
                let subjects = object["subjects"].to_string();
                accounts.iter().all(|account| subjects.contains(account.as_str()))
            })
            .await;
        }
        for (tenant, namespace) in [("solar", OWN), ("lunar", OTHER)] {
            let path = format!("apis/tenant-broker.io/v1alpha1/tenants/{tenant}");
            until(&self.fixture, &path, |object| {
                let status = &object["status"];
                status["state"] == "Active" && status["namespaces"] == json!([namespace])
            })
            .await;
        }
        for namespace in [OWN, OTHER, PLAIN, OWNERS, OTHERS] {
            let path = format!("api/v1/namespaces/{namespace}/serviceaccounts/default");
            until(&self.fixture, &path, |object| object["kind"] == "ServiceAccount").await;
        }
    }

    /// A namespace, as somebody sends it who changes it whatever its version is.
    pub(super) async fn namespace(&self, name: &str) -> Value {
        let path = format!("api/v1/namespaces/{name}");
        let (status, mut live) =
            self.fixture.cluster().admin(Method::GET, &path, None).await.unwrap();
        assert_eq!(status, StatusCode::OK, "{live}");
        let metadata = live["metadata"].as_object_mut().unwrap();
        metadata.remove("managedFields");
        metadata.remove("resourceVersion");
        live
    }
}

impl Member {
    async fn of(fixture: &Fixture, name: &str, tenant: &str) -> Self {
        let person = fixture.person(name).await.unwrap();
        let (_, credential) = fixture.member(&person, tenant).await.unwrap();
        let Credential::Token(token) = credential else { panic!("a member has a token") };
        let account = format!("member-{}", person.id);
        Self { person, account, token: token.expose_secret().to_owned() }
    }
}

/// Creates an object as an administrator, and returns the response.
pub(super) async fn make(fixture: &Fixture, path: &str, object: &Value) -> Value {
    let (status, made) = fixture.cluster().admin(Method::POST, path, Some(object)).await.unwrap();
    assert!(status.is_success(), "{path}: {status} {made}");
    made
}

/// Waits until an object satisfies a condition.
pub(super) async fn until(fixture: &Fixture, path: &str, holds: impl Fn(&Value) -> bool) {
    probe::until(path, RECONCILE_TIMEOUT, || async {
        let (_, object) = fixture.cluster().admin(Method::GET, path, None).await?;
        let is_so = holds(&object);
        Ok(if is_so { Probe::Ready(()) } else { Probe::NotYet(object.to_string()) })
    })
    .await
    .unwrap();
}

/// A token of a ServiceAccount, as an administrator requests it.
async fn token(fixture: &Fixture, namespace: &str, spec: &Value) -> String {
    let path = format!("api/v1/namespaces/{namespace}/serviceaccounts/{ROBOT}/token");
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec,
    });
    let made = make(fixture, &path, &request).await;
    made["status"]["token"].as_str().unwrap().to_owned()
}

/// Makes namespaces that are no tenant's, with ServiceAccounts that may create namespaces. Returns their
/// tokens: that of the owner, and that of the namesake.
async fn other_namespaces(fixture: &Fixture) -> (String, String) {
    for name in [PLAIN, OWNERS, OTHERS] {
        make(fixture, "api/v1/namespaces", &json!({"metadata": {"name": name}})).await;
    }
    for namespace in [OWNERS, OTHERS] {
        let path = format!("api/v1/namespaces/{namespace}/serviceaccounts");
        make(fixture, &path, &json!({"metadata": {"name": ROBOT}})).await;
    }
    let role_ref = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
        "name": "tenant-namespace-provisioner"});
    let binding = json!({"metadata": {"name": "robots"}, "roleRef": role_ref,
        "subjects": [account(OWNERS, ROBOT), account(OTHERS, ROBOT)]});
    make(fixture, &format!("{RBAC}/clusterrolebindings"), &binding).await;
    (token(fixture, OWNERS, &json!({})).await, token(fixture, OTHERS, &json!({})).await)
}

/// Has an owner run a pod whose ServiceAccount has the role `admin`, and returns the pod's token, which
/// its kubelet would request.
async fn program(fixture: &Fixture, owner: &Member) -> String {
    let core = format!("api/v1/namespaces/{OWN}");
    let bindings = format!("{RBAC}/namespaces/{OWN}/rolebindings");
    let admin = role_binding(OWN, "programs", "admin", &json!([account(OWN, ROBOT)]));
    let container = json!([{"name": "c", "image": "registry.k8s.io/pause"}]);
    let pod = json!({"metadata": {"name": "program"},
        "spec": {"serviceAccountName": ROBOT, "containers": container}});
    for (path, object) in [
        (format!("{core}/serviceaccounts"), json!({"metadata": {"name": ROBOT}})),
        (bindings, admin),
        (format!("{core}/pods"), pod),
    ] {
        // The quota is counted a moment after the creation of the namespace.
        probe::until(&path, RECONCILE_TIMEOUT, || async {
            let sent = owner.person.through_gateway(0, Method::POST, &path, Some(&object)).await;
            let (status, made) = sent?;
            let is_made = matches!(status, StatusCode::CREATED | StatusCode::CONFLICT);
            Ok(if is_made { Probe::Ready(()) } else { Probe::NotYet(made.to_string()) })
        })
        .await
        .unwrap();
    }
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "name": "program"});
    token(fixture, OWN, &json!({"boundObjectRef": pod})).await
}
