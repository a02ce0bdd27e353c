//! A person's provider no longer names a group that gave them a role in a tenant. The API server does
//! not end a stream with the right, so the gateway ends it.

use std::time::Duration;

use integration::kubectl::Kubectl;
use integration::oidc_provider::OidcProvider;
use integration::person::Person;
use integration::streams::{OpenStreams, make_pod};
use integration::world::World;
use secrecy::SecretString;
use serde_json::{Value, json};

use super::cluster::{group, until_accepted, until_refused, user};
use super::reconcile::until;
use super::rest::until_active;
use super::{TENANT_BROKER, provider, until_served, with_object};
use crate::gateway::through_the_gateway;

/// Limit of the time until a stream ends.
const END_TIMEOUT: Duration = Duration::from_secs(50);
/// Longer than the test: the command of `exec` prints nothing meanwhile.
const EXEC_SILENCE: Duration = Duration::from_mins(10);
const POD: &str = "p";
const CAROL: &str = "carol";
const GROUP: &str = "developers";
/// Namespace of the tenant in which the group has a role.
const SOLAR: &str = "solar-a";
/// Namespace of the tenant that names carol herself.
const LUNAR: &str = "lunar-a";

/// alice owns two tenants, and carol signs in at the provider.
struct Fixture {
    world: World,
    provider: OidcProvider,
    alice: Person,
}

impl Fixture {
    async fn start() -> Self {
        let provider = OidcProvider::start().await.unwrap();
        let builder = World::builder().own_control_plane().node().tls();
        let builder = builder.installed("tenants.enabled", true).setting("drift_seconds", 3600);
        let builder = provider::settings(&provider)
            .into_iter()
            .fold(builder, |builder, (key, value)| builder.setting(&key, value));
        let world = builder.start().await.unwrap();
        provider::register_broker(&world, &provider).await;
        let admin = world.admin_kubectl().unwrap();
        until_served(&admin, TENANT_BROKER).await;
        let alice = through_the_gateway(&world, "alice").await;
        let owner = alice.api().await.unwrap();
        for (name, subject, namespace) in
            [("solar", group(GROUP), SOLAR), ("lunar", user("carol@example.com"), LUNAR)]
        {
            let object = tenant(name, alice.email(), &subject).to_string();
            with_object(&admin, &["apply"], object).await.success().unwrap();
            until_active(&owner, name).await;
            owner.create_tenant_namespace(name, namespace).await.unwrap();
        }
        Self { world, provider, alice }
    }

    async fn make_pods(&self) {
        for namespace in [SOLAR, LUNAR] {
            let account = ["serviceaccount", "default", "-n", namespace];
            until(&self.world, &account, |account| !account.is_null()).await;
            let file = self.alice.home().join(format!("{namespace}.kubeconfig"));
            std::fs::copy(self.alice.kubeconfig(), &file).unwrap();
            let kubectl = self.alice.kubectl().clone().env("KUBECONFIG", file);
            use_namespace(&kubectl, namespace).await;
            make_pod(&kubectl, self.world.node().unwrap(), POD).await.unwrap();
        }
    }

    /// kubectl of carol with this default namespace, once she may use it.
    async fn in_namespace(&self, token: &SecretString, namespace: &str) -> Kubectl {
        let kubectl = provider::kubectl(&self.world, namespace, token);
        use_namespace(&kubectl, namespace).await;
        until_accepted(&kubectl, &["get", "configmaps"]).await;
        kubectl
    }
}

/// A Tenant with an owner, and a subject with the ClusterRole `edit`.
fn tenant(name: &str, owner: &str, subject: &Value) -> Value {
    json!({
        "apiVersion": TENANT_BROKER.1,
        "kind": "Tenant",
        "metadata": {"name": name},
        "spec": {
            "owners": [{"kind": "User", "name": owner}],
            "additionalRoleBindings": [{"clusterRoleName": "edit", "subjects": [subject]}],
        },
    })
}

async fn use_namespace(kubectl: &Kubectl, namespace: &str) {
    let set = ["config", "set-context", "--current", "--namespace", namespace];
    kubectl.run(set).await.unwrap().success().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_that_the_provider_names_no_longer_ends_the_streams_that_it_allowed() {
    let fixture = Fixture::start().await;
    let Fixture { world, provider: at, .. } = &fixture;
    provider::set_groups(at, CAROL, &[GROUP]).await;
    let session = provider::sign_in(world, at, CAROL).await;
    let solar = fixture.in_namespace(&session.access_token, SOLAR).await;
    let lunar = fixture.in_namespace(&session.access_token, LUNAR).await;
    // Streams that begin when somebody's groups have just changed are closed once, 20 s later, because
    // the RoleBindings may not have followed. That must not be taken for the end that is tested.
    let young = solar.spawn(["get", "configmaps", "-w"]).unwrap();
    fixture.make_pods().await;
    young.finish(END_TIMEOUT).await.unwrap();

    let node = world.node().unwrap();
    let mut streams = OpenStreams::open(&solar, node, POD, EXEC_SILENCE, "solar").await.unwrap();
    let mut others = OpenStreams::open(&lunar, node, POD, EXEC_SILENCE, "lunar").await.unwrap();
    provider::set_groups(at, CAROL, &[]).await;
    // The broker asks the provider when the session is renewed.
    streams.still_work(node, "before").await.unwrap();
    let ends = tokio::spawn(streams.end(END_TIMEOUT));
    let issuer = provider::issuer(world).await;
    issuer.refresh(&session.refresh_token).await.unwrap();
    ends.await.unwrap().unwrap();
    others.still_work(node, "after").await.unwrap();
    until_refused(&solar, &["get", "configmaps"], "Forbidden").await;
}
