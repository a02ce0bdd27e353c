//! The gateway in a real browser: pages with the cookie, from listed origins, over WebSocket.

use integration::{streams::make_pod, world::World};
use serde_json::json;

use crate::account::{AtListedPage, at_listed_page};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listed_page_reads_changes_and_watches_and_no_other_does() {
    let AtListedPage { world, alice, chromium, broker, other } =
        at_listed_page(World::builder()).await;
    let path =
        format!("clusters/internal-cluster/api/v1/namespaces/{}/configmaps", alice.namespace());
    let url = broker.join(&path).unwrap();
    let document = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "page"}});
    let create = format!(
        "fetch('{url}', {{method: 'POST', credentials: 'include', body: JSON.stringify({document}),
            headers: {{'content-type': 'application/json'}}}}).then(r => r.status, e => 'failed')"
    );
    let names = format!(
        "fetch('{url}', {{credentials: 'include'}}).then(r => r.json())
            .then(list => list.items.map(it => it.metadata.name).join(), e => 'failed')"
    );
    let mut socket = url.clone();
    socket.set_scheme("ws").unwrap();
    socket.set_query(Some("watch=true"));
    let watch = format!(
        "new Promise(done => {{
            const socket = new WebSocket('{socket}');
            socket.onmessage = event => done(JSON.parse(event.data).object.metadata.name);
            socket.onerror = () => done('failed');
        }})"
    );
    assert_eq!(chromium.value(&create).await.unwrap(), 201);
    assert_eq!(chromium.value(&names).await.unwrap(), "page");
    assert_eq!(chromium.value(&watch).await.unwrap(), "page");

    chromium.open(&other).await.unwrap();
    chromium.until(&format!("location.origin === '{other}'")).await.unwrap();
    for attempt in [&create, &names, &watch] {
        assert_eq!(chromium.value(attempt).await.unwrap(), "failed", "{attempt}");
    }
    // A form can be sent without permission, but it changes nothing.
    let form = format!(
        "fetch('{url}', {{method: 'POST', mode: 'no-cors', credentials: 'include',
            body: JSON.stringify({document}).replace('page', 'foreign')}}).then(r => r.type)"
    );
    assert_eq!(chromium.value(&form).await.unwrap(), "opaque");
    let namespace = alice.namespace();
    let there = crate::object_list(&world, &["configmaps", "-n", &namespace]).await.unwrap();
    assert_eq!(there.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listed_page_runs_a_command_in_a_pod_and_no_other_does() {
    let AtListedPage { world, alice, chromium, broker, other } =
        at_listed_page(World::builder().node()).await;
    alice.login(&[]).await.unwrap().success().unwrap();
    make_pod(alice.kubectl(), world.node().unwrap(), "p").await.unwrap();
    let path =
        format!("clusters/internal-cluster/api/v1/namespaces/{}/pods/p/exec", alice.namespace());
    let mut url = broker.join(&path).unwrap();
    url.set_scheme("ws").unwrap();
    for stream in ["stdin", "stdout", "stderr"] {
        url.query_pairs_mut().append_pair(stream, "true");
    }
    for word in ["sh", "-c", "read line; echo \"heard $line\"; echo also >&2; exit 3"] {
        url.query_pairs_mut().append_pair("command", word);
    }
    // The first byte of a message is its channel: 0 to 2 are standard input, output and error, 3 is
    // the exit status. Output may come in pieces.
    let exec = format!(
        "new Promise(done => {{
            const socket = new WebSocket('{url}', 'v5.channel.k8s.io');
            const said = ['', '', '', ''];
            socket.binaryType = 'arraybuffer';
            socket.onopen = () => socket.send(new TextEncoder().encode('\\0a word\\n'));
            socket.onmessage = event => {{
                const bytes = new Uint8Array(event.data);
                said[bytes[0]] += new TextDecoder().decode(bytes.slice(1));
            }};
            socket.onclose = () => done(said.join('|'));
        }})"
    );
    let said = chromium.value(&exec).await.unwrap();
    let said = said.as_str().unwrap();
    assert!(said.starts_with("|heard a word\n|also\n|"), "{said}");
    assert!(said.contains(r#""status":"Failure""#) && said.contains("exit"), "{said}");

    chromium.open(&other).await.unwrap();
    chromium.until(&format!("location.origin === '{other}'")).await.unwrap();
    assert_eq!(chromium.value(&exec).await.unwrap(), "|||");
}
