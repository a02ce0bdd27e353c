//! Model services on the page of a frontend, in a real browser.

use serde_json::json;

use super::fixture::{builder_with_kinds, install_kinds, until_allowed};
use super::llama_stack::{LSD, distribution, ready_model};
use crate::account::{AtListedPage, at_listed_page};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listed_page_lists_and_installs_and_no_other_does_either() {
    let AtListedPage { world, alice, chromium, broker, other } =
        at_listed_page(builder_with_kinds()).await;
    install_kinds(&world).await;
    let (admin, namespace) = (world.admin_kubectl().unwrap(), alice.namespace());
    let account = format!("--as=system:serviceaccount:{namespace}:sa-tenant-admin");
    let kind = "llamastackdistributions.llamastack.io";
    until_allowed(&admin, &[&account, "create", kind, "-n", &namespace]).await;
    ready_model(&admin, &namespace, "granite").await;
    let listed = chromium.value("location.href").await.unwrap().as_str().unwrap().to_owned();
    let url = |path: &str| {
        let mut url = broker.join(&format!("gen-ai/api/v1/{path}")).unwrap();
        url.set_query(Some(&format!("namespace={namespace}")));
        url
    };
    let names = format!(
        "fetch('{}', {{credentials: 'include'}}).then(r => r.json())
            .then(answer => answer.data.map(it => it.model_name).join()).catch(e => 'failed')",
        url("aaa/models")
    );
    let body = json!({"models": [{"model_name": "granite"}]});
    let install = format!(
        "fetch('{}', {{method: 'POST', credentials: 'include', body: JSON.stringify({body}),
            headers: {{'content-type': 'application/json'}}}}).then(r => r.json())
            .then(answer => answer.data.name).catch(e => 'failed')",
        url("lsd/install")
    );
    // A form can be sent without permission, and a page cannot read its answer.
    let form = format!(
        "fetch('{}', {{method: 'POST', mode: 'no-cors', credentials: 'include',
            body: JSON.stringify({body})}}).then(r => r.type).catch(e => 'failed')",
        url("lsd/install")
    );

    chromium.open(&other).await.unwrap();
    chromium.until(&format!("location.origin === '{other}'")).await.unwrap();
    for attempt in [&names, &install] {
        assert_eq!(chromium.value(attempt).await.unwrap(), "failed", "{attempt}");
    }
    assert_eq!(chromium.value(&form).await.unwrap(), "opaque");
    assert!(distribution(&world, &namespace).await.is_none());
    let rows = alice.api().await.unwrap().audit_logs("action=InstallLlamaStack").await.unwrap();
    assert!(rows.items.is_empty(), "{rows:?}");

    chromium.open(&listed).await.unwrap();
    chromium.until(&format!("location.href === '{listed}'")).await.unwrap();
    assert_eq!(chromium.value(&names).await.unwrap(), "granite");
    assert_eq!(chromium.value(&install).await.unwrap(), LSD);
    assert!(distribution(&world, &namespace).await.is_some());
}
