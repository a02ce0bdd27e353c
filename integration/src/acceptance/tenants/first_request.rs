//! The first request in a new namespace.

use anyhow::{Context, Result, ensure};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::fixture::{Credential, Fixture, SignedIn};

/// Creates namespaces through the gateway, each through one replica, and uses each at once: through
/// the gateway of the next replica, and with the owner's token at the API server.
///
/// # Errors
/// A namespace is not created, or the first request in it is refused.
pub async fn check_first_requests(
    fixture: &Fixture,
    owner: &SignedIn,
    tenant: &str,
    count: usize,
) -> Result<()> {
    fixture.apply(tenant, &json!({"owners": [{"kind": "User", "name": owner.email}]})).await?;
    fixture.until_state(tenant, "Active").await?;
    let (_, token) = fixture.member(owner, tenant).await?;
    for number in 0..count {
        let name = format!("{tenant}-{number}");
        Box::pin(create_and_use(fixture, owner, &token, &name, number)).await.with_context(
            || format!("namespace {number} of {count}; {}", logged(fixture, &name)),
        )?;
    }
    let namespaces = fixture.namespaces_of(tenant).await?;
    ensure!(namespaces.len() == count, "{namespaces:?}");
    Ok(())
}

async fn create_and_use(
    fixture: &Fixture,
    owner: &SignedIn,
    token: &Credential,
    name: &str,
    replica: usize,
) -> Result<()> {
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let made = owner.through_gateway(replica, Method::POST, "api/v1/namespaces", Some(&object));
    expect_created("the creation", made.await?)?;
    let path = format!("api/v1/namespaces/{name}/configmaps");
    let object = json!({"metadata": {"generateName": "first-"}});
    let (through, direct) = tokio::join!(
        owner.through_gateway(replica + 1, Method::POST, &path, Some(&object)),
        fixture.cluster().send(token, Method::POST, &path, Some(&object)),
    );
    expect_created("the first request through the gateway", through?)?;
    expect_created("the first request at the API server", direct?)
}

/// What the replicas log of a namespace, such as the warning that a creation no longer waits for its rights.
fn logged(fixture: &Fixture, namespace: &str) -> String {
    let lines = fixture.lines_of_logs(namespace);
    lines.map_or_else(|error| format!("{error:#}"), |lines| format!("logs: {}", lines.join("\n")))
}

fn expect_created(what: &str, (status, answer): (StatusCode, Value)) -> Result<()> {
    ensure!(status == StatusCode::CREATED, "{what}: {status} {answer}");
    Ok(())
}
