//! Files that change while the broker runs: its credential, and the certificate of its listener.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use integration::authority::{Authority, Identity};
use integration::broker::Broker;
use integration::control_plane::BROKER_USER;
use integration::http_client::http_client;
use integration::kubeconfig;
use integration::mounted_secret::MountedSecret;
use integration::probe::{self, Probe};
use integration::scratch::{private_folder, write_private};
use integration::world::World;
use reqwest::{Client, StatusCode};
use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::until_logged;

/// Time limit until changed files are used or refused. The broker needs two seconds.
const RELOAD_TIMEOUT: Duration = Duration::from_mins(1);

/// An authority that the cluster does not know.
fn other_authority(world: &World) -> Authority {
    let folder = world.folder().join("other-authority");
    private_folder(&folder).unwrap();
    Authority::open(&folder).unwrap()
}

/// A kubeconfig with this client certificate.
fn kubeconfig_of(world: &World, identity: &Identity) -> String {
    let (file, cluster) = (world.folder().join("new.kubeconfig"), world.cluster());
    let authority = cluster.authority().certificate();
    kubeconfig::write(&file, cluster.url(), authority, "broker", identity).unwrap();
    std::fs::read_to_string(&file).unwrap()
}

/// Waits until the broker has used or refused changed files this number of times. A refusal counts
/// again if its reason changes, for example because the API server was too slow once.
async fn until_reloaded(broker: &Broker, file: &str, outcome: &str, count: u32) {
    let series =
        format!("tenant_broker_file_reloads_total{{file=\"{file}\",outcome=\"{outcome}\"}} ");
    probe::until("changed files to be read again", RELOAD_TIMEOUT, || async {
        let metrics = broker.metrics().await?;
        let mut values = metrics.lines().filter_map(|line| line.strip_prefix(&series));
        let found: u32 = values.next().and_then(|value| value.parse().ok()).unwrap_or(0);
        let is_there = found >= count;
        Ok(if is_there { Probe::Ready(()) } else { Probe::NotYet(format!("{series}{found}")) })
    })
    .await
    .unwrap();
}

/// The number of TokenRequests in the cluster's audit log that came with this client certificate.
fn token_requests(world: &World, identity: &Identity) -> usize {
    let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes()).unwrap();
    let digest: [u8; 32] = Sha256::digest(&certificate).into();
    let mut id = "X509SHA256=".to_owned();
    for byte in digest {
        write!(id, "{byte:02x}").unwrap();
    }
    let came_with_it = |event: &&Value| {
        let used = &event["user"]["extra"]["authentication.kubernetes.io/credential-id"][0];
        event["objectRef"]["subresource"] == "token" && *used == id.as_str()
    };
    world.cluster().audit_events(&id).unwrap().iter().filter(came_with_it).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_credential_of_the_broker_is_used_while_tokens_are_issued() {
    const FILE: &str = "cluster.kubeconfig";
    let world = World::builder().start().await.unwrap();
    let (broker, authority) = (world.broker(), world.cluster().authority());
    let first = authority.client(BROKER_USER, None).unwrap();
    let second = authority.client(BROKER_USER, None).unwrap();
    let text = kubeconfig_of(&world, &first);
    let folder = world.folder().join("credential");
    let mounted = MountedSecret::new(&folder, &[("kubeconfig", &*text)]).unwrap();
    broker.use_kubeconfig(&mounted.path("kubeconfig"));
    broker.crash_and_restart().await.unwrap();
    let alice = world.person("alice").await.unwrap();
    let api = alice.api().await.unwrap();
    let (workspace, _) = api.init("basic").await.unwrap();

    let (is_done, issued) = (AtomicBool::new(false), AtomicU32::new(0));
    let issuing = async {
        while !is_done.load(Ordering::SeqCst) {
            api.credential(workspace.id).await.unwrap();
            issued.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let replacing = async {
        let strangers = [
            // The admission policies do not restrict this user.
            (authority.client("mallory", None), "knows the new credential as mallory"),
            (other_authority(&world).client(BROKER_USER, None), "does not accept the new"),
        ];
        for (refused, (identity, reason)) in (1..).zip(strangers) {
            let text = kubeconfig_of(&world, &identity.unwrap());
            mounted.replace(&[("kubeconfig", &*text)]).unwrap();
            until_reloaded(broker, FILE, "refused", refused).await;
            until_logged(broker, reason).await;
        }
        let text = kubeconfig_of(&world, &second);
        mounted.replace(&[("kubeconfig", &*text)]).unwrap();
        until_reloaded(broker, FILE, "ok", 1).await;
        is_done.store(true, Ordering::SeqCst);
    };
    tokio::join!(issuing, replacing);

    assert!(issued.load(Ordering::SeqCst) > 0);
    let with_the_first = token_requests(&world, &first);
    assert!(with_the_first > 0);
    let with_the_second = token_requests(&world, &second);
    for _ in 0..3 {
        api.credential(workspace.id).await.unwrap();
    }
    assert_eq!(token_requests(&world, &first), with_the_first);
    assert_eq!(token_requests(&world, &second), with_the_second + 3);
    let metrics = broker.metrics().await.unwrap();
    let end = format!("tenant_broker_credential_expiry_timestamp_seconds{{file=\"{FILE}\"}} ");
    assert!(metrics.contains(&end), "{metrics}");
}

/// A kubeconfig with a program that prints this file.
fn kubeconfig_with_program(world: &World, printed: &Path) -> Value {
    let cluster = world.cluster();
    let authority = STANDARD.encode(cluster.authority().certificate());
    let program = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
        "command": "cat", "args": [printed],
    });
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {
            "server": cluster.url().as_str(), "certificate-authority-data": authority,
        }}],
        "users": [{"name": "u", "user": {"exec": program}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    })
}

/// What a program prints. The end is in the past, so the broker runs the program again soon.
fn exec_credential(identity: &Identity, end: &str) -> String {
    json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
        "status": {
            "expirationTimestamp": end, "clientCertificateData": identity.certificate,
            "clientKeyData": identity.key,
        },
    })
    .to_string()
}

#[tokio::test]
async fn a_program_cannot_give_the_broker_the_credential_of_another_user() {
    const FILE: &str = "cluster.kubeconfig";
    let world = World::builder().start().await.unwrap();
    let (broker, authority) = (world.broker(), world.cluster().authority());
    let first = authority.client(BROKER_USER, None).unwrap();
    let printed = world.folder().join("exec-credential");
    write_private(&printed, exec_credential(&first, "2020-01-01T00:00:00Z")).unwrap();
    let kubeconfig = world.folder().join("program.kubeconfig");
    let text = kubeconfig_with_program(&world, &printed).to_string();
    write_private(&kubeconfig, &text).unwrap();
    broker.use_kubeconfig(&kubeconfig);
    broker.crash_and_restart().await.unwrap();
    let alice = world.person("alice").await.unwrap();
    let api = alice.api().await.unwrap();
    let (workspace, _) = api.init("basic").await.unwrap();

    // The program does not print a new one, and the operator is told.
    until_logged(broker, "a value ended, and was not replaced by a new one").await;

    let strangers = [
        (authority.client("mallory", None), "knows the new credential as mallory"),
        (authority.client(BROKER_USER, Some("system:masters")), "it may do everything"),
    ];
    for (refused, (identity, reason)) in (1..).zip(strangers) {
        let end = format!("2020-02-0{refused}T00:00:00Z");
        write_private(&printed, exec_credential(&identity.unwrap(), &end)).unwrap();
        until_logged(broker, reason).await;
    }
    std::fs::remove_file(&printed).unwrap();
    until_logged(broker, "ended with exit status").await;
    let before = token_requests(&world, &first);
    api.credential(workspace.id).await.unwrap();
    assert_eq!(token_requests(&world, &first), before + 1, "the first credential stays in use");

    let second = authority.client(BROKER_USER, None).unwrap();
    write_private(&printed, exec_credential(&second, "2020-03-01T00:00:00Z")).unwrap();
    until_reloaded(broker, FILE, "ok", 1).await;
    api.credential(workspace.id).await.unwrap();
    assert_eq!(token_requests(&world, &second), 1);
    assert!(!broker.log().unwrap().contains("PRIVATE KEY"), "what the program printed is logged");
}

#[tokio::test]
async fn a_new_certificate_is_shown_to_new_connections() {
    let world = World::builder().tls().start().await.unwrap();
    let broker = world.broker();
    let url = broker.url().unwrap().join(".well-known/openid-configuration").unwrap();
    let get = async |client: &Client| -> reqwest::Result<StatusCode> {
        let response = client.get(url.clone()).send().await?;
        let status = response.status();
        response.bytes().await.map(|_| status)
    };
    let client_of = |authority: &Authority| http_client(Some(authority.certificate())).unwrap();
    let (before, after) = (world.cluster().authority(), other_authority(&world));
    let open = client_of(before);
    assert_eq!(get(&open).await.unwrap(), StatusCode::OK);

    // An administrator copies one file, and later the other.
    let identity = after.server("tenant-broker").unwrap();
    write_private(&world.folder().join("broker.crt"), &identity.certificate).unwrap();
    until_reloaded(broker, "tls", "refused", 1).await;
    assert_eq!(get(&client_of(before)).await.unwrap(), StatusCode::OK);
    write_private(&world.folder().join("broker.key"), &identity.key).unwrap();
    until_reloaded(broker, "tls", "ok", 1).await;

    assert_eq!(get(&open).await.unwrap(), StatusCode::OK);
    assert!(get(&client_of(before)).await.is_err());
    assert_eq!(get(&client_of(&after)).await.unwrap(), StatusCode::OK);
    let log = broker.log().unwrap();
    assert!(log.contains("changed files cannot be used"), "the refusal is not in the log");
    assert!(log.contains("changed files were read again"), "the use is not in the log");
}
