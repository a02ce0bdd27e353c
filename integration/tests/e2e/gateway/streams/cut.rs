//! The kill switch and streams: all open streams end, on the replica that gets the request and on
//! the other.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use http::Method;
use integration::kubectl::Kubectl;
use integration::person::Person;
use integration::progress::print_message;
use integration::streams::{OpenStreams, StreamEnds, make_pod};
use integration::world::World;
use tenant_shared::{SessionList, SuspendRequest};

use super::{POD, through_the_gateway};

/// Time limit for streams to end in a test. The test prints the real time, and docs/gateway.md
/// promises it.
const CUT_TIMEOUT: Duration = Duration::from_secs(20);
/// Longer than any test: the command of `exec` prints nothing meanwhile.
const EXEC_SILENCE: Duration = Duration::from_mins(10);

/// A person with streams through each replica.
struct ReplicaStreams {
    person: Person,
    streams: Vec<OpenStreams>,
}

impl ReplicaStreams {
    async fn new(world: &World, name: &str) -> Self {
        let person = through_the_gateway(world, name).await;
        let node = world.node().unwrap();
        make_pod(person.kubectl(), node, POD).await.unwrap();
        let mut streams = Vec::new();
        for replica in 0..world.brokers().len() {
            let kubectl = at(world, &person, replica);
            let open = OpenStreams::open(&kubectl, node, POD, EXEC_SILENCE, &format!("r{replica}"))
                .await
                .unwrap();
            streams.push(open);
        }
        Self { person, streams }
    }

    /// Checks that the streams still work, whatever happened to others.
    async fn still_work(&mut self, world: &World, text: &str) {
        for (replica, streams) in self.streams.iter_mut().enumerate() {
            let text = format!("{text}{replica}");
            streams.still_work(world.node().unwrap(), &text).await.unwrap();
        }
    }

    /// Runs `doing`, and checks that it ends all streams.
    async fn are_cut_by(mut self, world: &World, why: &str, doing: impl Future<Output = ()>) {
        self.still_work(world, "last").await;
        let ends: Vec<_> = self
            .streams
            .into_iter()
            .map(|streams| tokio::spawn(streams.end(CUT_TIMEOUT + Duration::from_secs(10))))
            .collect();
        let asked = Instant::now();
        doing.await;
        let answered = Instant::now();
        for (replica, ends) in ends.into_iter().enumerate() {
            let ends: StreamEnds = ends.await.unwrap().unwrap();
            let mut line = format!("{why}, replica {}:", replica + 1);
            for (stream, end) in ends.all() {
                assert!(end > asked, "{stream} ended by itself");
                let after = end.saturating_duration_since(answered);
                assert!(after < CUT_TIMEOUT, "{stream} went on for {after:?} after the answer");
                let sign = if end < answered { '-' } else { '+' };
                let away = after.max(answered.saturating_duration_since(end)).as_millis();
                write!(line, " {stream} {sign}{away} ms").unwrap();
            }
            print_message(&format!(
                "{line} (the answer came {} ms after the request)",
                (answered - asked).as_millis()
            ));
        }
    }
}

/// Returns a person's kubectl with the gateway of this replica.
fn at(world: &World, person: &Person, replica: usize) -> Kubectl {
    let public = world.broker().public_url().unwrap();
    let own = world.brokers()[replica].url().unwrap();
    let line = |url: &url::Url| format!("server: {}", url.as_str().trim_end_matches('/'));
    let text = std::fs::read_to_string(person.kubeconfig()).unwrap();
    assert!(text.contains(&line(&public)), "{text}");
    let file = person.home().join(format!("replica-{replica}"));
    std::fs::write(&file, text.replace(&line(&public), &line(&own))).unwrap();
    person.kubectl().clone().env("KUBECONFIG", file)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_revocation_ends_the_streams_on_every_replica() {
    let world = World::builder().node().tls().postgres().replicas(2).start().await.unwrap();
    let operator = world.administrator("operator").await.unwrap().api().await.unwrap();
    let reason = SuspendRequest { reason: Some("leak".to_owned()) };
    let mut other = ReplicaStreams::new(&world, "other").await;

    let alice = ReplicaStreams::new(&world, "alice").await;
    let api = alice.person.api().await.unwrap();
    let workspace = api.workspaces(false).await.unwrap().items[0].id;
    let kubectl = alice.person.kubectl().clone();
    let suspend = async { drop(operator.suspend(workspace, &reason).await.unwrap()) };
    alice.are_cut_by(&world, "workspace suspended", suspend).await;
    for args in [&["get", "pods"][..], &["exec", POD, "--", "true"], &["logs", POD]] {
        let denied = kubectl.run(args).await.unwrap();
        assert!(denied.stderr.contains("suspended"), "{args:?}: {denied:?}");
    }
    other.still_work(&world, "one").await;

    let bob = ReplicaStreams::new(&world, "bob").await;
    let id = bob.person.id();
    let suspend = async { drop(operator.suspend_user(id, &reason).await.unwrap()) };
    bob.are_cut_by(&world, "user suspended", suspend).await;

    let carol = ReplicaStreams::new(&world, "carol").await;
    let api = carol.person.api().await.unwrap();
    let sessions = api.request(Method::GET, "me/sessions").unwrap().send().await.unwrap();
    let sessions: SessionList = sessions.json().await.unwrap();
    let of_kubectl: Vec<_> = sessions.items.iter().filter(|session| !session.current).collect();
    let [of_kubectl] = of_kubectl[..] else { panic!("{sessions:?}") };
    let path = format!("me/sessions/{}", of_kubectl.id);
    let end = async {
        let ended = api.request(Method::DELETE, &path).unwrap().send().await.unwrap();
        assert!(ended.status().is_success(), "{ended:?}");
    };
    carol.are_cut_by(&world, "session ended", end).await;

    let dave = ReplicaStreams::new(&world, "dave").await;
    let api = dave.person.api().await.unwrap();
    let workspace = api.workspaces(false).await.unwrap().items[0].id;
    let tokens = api.credentials(workspace, "all=true").await.unwrap().items;
    let of_gateway: Vec<_> =
        tokens.iter().filter(|token| format!("{:?}", token.kind) == "Gateway").collect();
    assert!(!of_gateway.is_empty(), "{tokens:?}");
    let kubectl = dave.person.kubectl().clone();
    // One credential for each replica. Revoking any of them replaces the ServiceAccount, and so
    // revokes all.
    let revoke = async { drop(api.revoke(workspace, &of_gateway[0].credential_id).await.unwrap()) };
    dave.are_cut_by(&world, "credential revoked", revoke).await;
    kubectl.run(["get", "pods"]).await.unwrap().success().unwrap();
    other.still_work(&world, "two").await;
}
