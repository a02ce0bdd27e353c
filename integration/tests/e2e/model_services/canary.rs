//! Tokens of models: no text of one is in objects, answers, files of the broker or its memory.

use std::fs::File;
use std::io::{BufRead as _, Read as _, Seek as _, SeekFrom};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use integration::fault_proxy::{Fault, RecordedRequest, Rule};
use integration::probe::{self, Probe};
use integration::world::World;
use serde_json::{Value, json};

use super::fixture::{Client, REG, TIMEOUT, namespace_of, world};
use super::llama_stack::{LSD, config_map, distribution, ready_model};
use super::lost_answers::operator;
use crate::object;

const NAMESPACE: &str = "lsd-canary";
/// A value in the Secret beside the token.
const EXTRA: &str = "canary-of-the-secret-51b7c09e";

/// The memory of a process that it can write to, region by region (proc(5)).
fn writable_memory(pid: u32) -> Vec<Vec<u8>> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let mut memory = File::open(format!("/proc/{pid}/mem")).unwrap();
    let mut regions = Vec::new();
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let (Some(range), Some(permissions)) = (words.next(), words.next()) else { continue };
        let Some((start, end)) = range.split_once('-') else { continue };
        if !permissions.starts_with("rw") {
            continue;
        }
        let address = |text: &str| u64::from_str_radix(text, 16).unwrap();
        let (start, end) = (address(start), address(end));
        let mut region = Vec::new();
        memory.seek(SeekFrom::Start(start)).unwrap();
        // A region may end while it is read.
        if memory.by_ref().take(end - start).read_to_end(&mut region).is_ok() {
            regions.push(region);
        }
    }
    regions
}

/// Whether these bytes have a text in them.
fn has(bytes: &[u8], text: &str) -> bool {
    let Some((first, others)) = text.as_bytes().split_first() else { return true };
    let mut rest = bytes;
    while rest.skip_until(*first).is_ok_and(|skipped| skipped > 0) {
        if rest.starts_with(others) {
            return true;
        }
    }
    false
}

/// Which of these texts a process has in its memory.
fn in_memory(pid: u32, texts: &[String]) -> Vec<String> {
    let memory = writable_memory(pid);
    let is_there = |text: &&String| memory.iter().any(|region| has(region, text));
    texts.iter().filter(is_there).cloned().collect()
}

/// Creates the ServiceAccount of a model and its token Secret, and returns the token, which
/// Kubernetes issues.
async fn token_secret(world: &World, model: &str) -> String {
    let admin = world.admin_kubectl().unwrap();
    let owner = object(world, &["inferenceservice", model, "-n", NAMESPACE]).await.unwrap();
    let uid = owner.unwrap()["metadata"]["uid"].clone();
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "model-sa",
         "namespace": NAMESPACE, "ownerReferences": [{"apiVersion": "serving.kserve.io/v1beta1",
         "kind": "InferenceService", "name": model, "uid": uid}]}},
        {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
         "metadata": {"name": "model-token", "namespace": NAMESPACE,
         "annotations": {"kubernetes.io/service-account.name": "model-sa"}},
         "stringData": {"extra": EXTRA}},
    ]});
    // `kubectl apply` would write the values into an annotation.
    let created = admin.run_with_input(["create", "-f", "-"], objects.to_string()).await.unwrap();
    created.success().unwrap();
    let token = probe::until("the token", TIMEOUT, || async {
        let secret = object(world, &["secret", "model-token", "-n", NAMESPACE]).await?;
        Ok(match secret.unwrap_or_default()["data"]["token"].as_str() {
            Some(token) => Probe::Ready(token.to_owned()),
            None => Probe::NotYet("the Secret has no token".to_owned()),
        })
    });
    String::from_utf8(STANDARD.decode(token.await.unwrap()).unwrap()).unwrap()
}

/// The texts that nobody may find: each value, and the parts of the token that no other one has, both
/// as they are and as JSON has them.
fn canaries(token: &str) -> Vec<String> {
    let parts: Vec<&str> = token.split('.').collect();
    let [_, payload, signature] = parts[..] else { panic!("no JWT") };
    let in_json = |value: &str| STANDARD.encode(value).trim_end_matches('=').to_owned();
    // The start of the payload is that of other tokens of the issuer.
    let payload = &payload[payload.len() / 2..];
    vec![EXTRA.into(), in_json(EXTRA), payload.into(), signature.into(), in_json(token)]
}

#[tokio::test]
async fn no_text_of_a_models_token_is_in_objects_answers_files_or_memory() {
    let world = world().await;
    let (client, admin) = (Client::new(&world), world.admin_kubectl().unwrap());
    namespace_of(&world, NAMESPACE, "reg", "admin").await;
    ready_model(&admin, NAMESPACE, "granite").await;
    let canaries = canaries(&token_secret(&world, "granite").await);
    // The second creation of an installation, when the answers of all reads are in memory or were.
    let in_the_middle = Arc::new(Mutex::new(Vec::new()));
    let look = {
        let (found, pid) = (Arc::clone(&in_the_middle), world.broker().pid().unwrap());
        // The name shows that the search finds what is there.
        let texts = [&canaries[..], &["model-token".to_owned()]].concat();
        Fault::before(move |_| {
            found.lock().unwrap().push(in_memory(pid, &texts));
            std::future::ready(())
        })
    };
    world.proxy().unwrap().add(Rule::new(look).when(|seen: &RecordedRequest| {
        seen.is(&Method::POST, "/lsd-canary/configmaps") && seen.has_token(REG)
    }));
    let models = client.get(&format!("/aaa/models?namespace={NAMESPACE}"), REG).await;
    let installed = client.install(NAMESPACE, REG, &["granite"]).await;
    installed.data();
    assert_eq!(*in_the_middle.lock().unwrap(), [["model-token"]]);
    let pid = world.broker().pid().unwrap();
    assert_eq!(in_memory(pid, &canaries), Vec::<String>::new());

    let lsd = distribution(&world, NAMESPACE).await.unwrap();
    assert!(lsd.to_string().contains("model-token"), "{lsd}");
    let status = client.get(&format!("/lsd/status?namespace={NAMESPACE}"), REG).await;
    let deleted = client.delete(NAMESPACE, REG, LSD).await;
    let rows = operator(&world).await.audit_logs("limit=100").await.unwrap().items;
    let rows: Value = serde_json::to_value(&rows).unwrap();
    assert!(rows.to_string().contains("InstallLlamaStack"), "{rows}");
    let log = world.broker().log().unwrap();
    assert!(log.contains("TRACE") && log.contains(NAMESPACE), "the log is at trace level");
    let mut texts = vec![
        ("the LlamaStackDistribution", lsd.to_string()),
        ("the audit trail", rows.to_string()),
        ("the log", log),
        ("the metrics", world.broker().metrics().await.unwrap()),
    ];
    for answer in [models, installed, status, deleted] {
        texts.push(("an answer", format!("{answer:?}")));
    }
    for entry in std::fs::read_dir(world.broker().state_dir()).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap_or_default();
        texts.push(("a file of the broker", String::from_utf8_lossy(&bytes).into_owned()));
    }
    for (what, text) in &texts {
        for canary in &canaries {
            assert!(!text.contains(canary.as_str()), "{what} has {canary}");
        }
    }
    assert!(config_map(&world, NAMESPACE).await.is_none());
}
