//! The command `namespaces delete`. The API server decides whether the person may do it, because the
//! gateway forwards the request with the token of their membership.

use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::Value;
use tenant_shared::TenantInfo;
use tokio::time::Instant;

use super::{choose, membership};
use crate::{
    account::Account, broker::Broker, cli::namespaces::DeleteNamespace, error::Error,
    http::TOTAL_TIMEOUT, runtime, store::AccountFlags, world::World,
};

/// Interval at which the cluster is asked whether the namespace is gone.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
const LIST: &str = "kubectl tenant namespaces --tenant";

/// Runs `namespaces delete`.
pub(super) fn delete(
    flags: &AccountFlags,
    options: &DeleteNamespace,
    world: &World,
) -> Result<(), Error> {
    let account = Account::open(flags, world)?;
    let deadline = Instant::now() + Duration::from_secs(options.timeout.into());
    let broker = account.broker.with_deadline(deadline + TOTAL_TIMEOUT);
    let name = &options.namespace;
    runtime::block_on(async {
        let tenant = choose::tenant_of(&broker, name, options.tenant.as_deref()).await?;
        let cluster = membership::of_tenant(&broker, &tenant, world).await?.cluster;
        let path = format!("/api/v1/namespaces/{name}");
        let response = broker.kubernetes(Method::DELETE, &cluster, &path, None).await?;
        if response.status == StatusCode::FORBIDDEN && is_terminating(&broker, &tenant, name).await
        {
            return Err(Error::refused(format!("namespace {name} is being deleted already"))
                .hint(format!("it is gone when the list has it no more: {LIST} {}", tenant.name)));
        }
        let uid = uid(&response.accepted()?).map(str::to_owned);
        world.print_message(format!("Namespace {name} is being deleted."));
        if !options.wait {
            return Ok(());
        }
        let namespace = NamespacePath { cluster: &cluster, path: &path, uid: uid.as_deref() };
        wait_until_gone(&broker, &namespace, deadline, world).await?;
        world.print_message(format!("Namespace {name} is gone."));
        Ok::<_, Error>(())
    })?
}

/// Whether the broker knows that a namespace is being deleted, and has taken the rights in it away.
async fn is_terminating(broker: &Broker, tenant: &TenantInfo, namespace: &str) -> bool {
    let found = broker.tenant_namespaces(&tenant.name).await.unwrap_or_default();
    found.items.iter().any(|it| it.name == namespace && it.status == "terminating")
}

/// Tenant and identity of a namespace.
struct NamespacePath<'a> {
    cluster: &'a str,
    path: &'a str,
    uid: Option<&'a str>,
}

/// Polls until the namespace does not exist any more.
async fn wait_until_gone(
    broker: &Broker,
    namespace: &NamespacePath<'_>,
    deadline: Instant,
    world: &World,
) -> Result<(), Error> {
    let mut reported = String::new();
    loop {
        let response =
            broker.kubernetes(Method::GET, namespace.cluster, namespace.path, None).await?;
        match response.status {
            StatusCode::NOT_FOUND => return Ok(()),
            // The rights in a namespace may end before it does.
            StatusCode::FORBIDDEN => {}
            _ => {
                let object = response.accepted()?;
                let now = uid(&object);
                if now.is_some() && namespace.uid.is_some() && now != namespace.uid {
                    // Somebody created another one of this name.
                    return Ok(());
                }
                let remaining = remaining(&object);
                if !remaining.is_empty() && remaining != reported {
                    world.print_message(format!("Waiting: {remaining}"));
                    reported = remaining;
                }
            }
        }
        if Instant::now() + POLL_INTERVAL > deadline {
            return Err(Error::unreachable("the namespace still exists, and is being deleted")
                .hint("the cluster continues by itself; --timeout SECONDS waits longer"));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Uid of a namespace: of the object, or of the `Status` with which a deletion may be answered.
fn uid(object: &Value) -> Option<&str> {
    object["metadata"]["uid"].as_str().or_else(|| object["details"]["uid"].as_str())
}

/// What keeps a namespace from being gone, as its conditions say (API reference, `NamespaceStatus`).
fn remaining(namespace: &Value) -> String {
    let conditions = namespace["status"]["conditions"].as_array();
    let messages: Vec<&str> = conditions
        .into_iter()
        .flatten()
        .filter(|condition| condition["status"] == "True")
        .filter_map(|condition| condition["message"].as_str())
        .collect();
    messages.join("; ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn conditions_that_hold_say_what_remains() {
        let namespace = json!({"metadata": {"uid": "u"}, "status": {"conditions": [
            {"type": "NamespaceDeletionContentFailure", "status": "False", "message": "all deleted"},
            {"type": "NamespaceContentRemaining", "status": "True", "message": "pods. has 1"},
            {"type": "NamespaceFinalizersRemaining", "status": "True", "message": "x in 1"},
        ]}});
        assert_eq!(remaining(&namespace), "pods. has 1; x in 1");
        assert_eq!(remaining(&json!({})), "");
        assert_eq!(uid(&namespace), Some("u"));
        assert_eq!(uid(&json!({"kind": "Status", "details": {"uid": "v"}})), Some("v"));
    }
}
