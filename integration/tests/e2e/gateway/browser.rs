//! The gateway as pages use it, in a real browser: with the cookie, by listed origins, over WebSocket.

use serde_json::json;

use crate::account::{AtListedPage, at_listed_page};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listed_page_reads_changes_and_watches_and_no_other_does() {
    let AtListedPage { world, alice, chromium, broker, other } = at_listed_page().await;
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
    // A form needs no permission to be sent, but it changes nothing.
    let form = format!(
        "fetch('{url}', {{method: 'POST', mode: 'no-cors', credentials: 'include',
            body: JSON.stringify({document}).replace('page', 'foreign')}}).then(r => r.type)"
    );
    assert_eq!(chromium.value(&form).await.unwrap(), "opaque");
    let namespace = alice.namespace();
    let there = crate::object_list(&world, &["configmaps", "-n", &namespace]).await.unwrap();
    assert_eq!(there.len(), 1);
}
