//! The kinds of KServe and Llama Stack, of which model services read and create objects, and
//! ClusterRoles that give people rights to them. There are no operators.

use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use crate::kubectl::Kubectl;
use crate::probe::{self, Probe};
use crate::world::World;

/// The definitions of the kinds, and ClusterRoles that aggregate to those of people.
pub const DEFINITIONS: &str = include_str!("definitions.yaml");
/// Plural names of the kinds.
const KINDS: [&str; 4] = [
    "inferenceservices.serving.kserve.io",
    "llminferenceservices.serving.kserve.io",
    "servingruntimes.serving.kserve.io",
    "llamastackdistributions.llamastack.io",
];
/// Held while the kinds are installed, because worlds share the control plane, and kubectl fails to
/// create what another one creates meanwhile.
static INSTALLING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
/// Time limit until the API server serves the kinds, and until the roles of people have them.
pub const TIMEOUT: Duration = Duration::from_mins(1);

/// Installs the kinds, waits until their lists are served, and gives the user `adm` the ClusterRole
/// `cluster-admin`.
///
/// # Errors
/// kubectl fails, or the kinds are not served in time.
pub async fn install(world: &World) -> Result<()> {
    install_definitions(world, DEFINITIONS).await
}

/// As [`install`], with these definitions.
///
/// # Errors
/// As [`install`].
pub async fn install_definitions(world: &World, definitions: &str) -> Result<()> {
    let admin = world.admin_kubectl()?;
    let installing = INSTALLING.lock().await;
    admin.run_with_input(["apply", "-f", "-"], definitions).await?.success()?;
    drop(installing);
    for kind in KINDS {
        probe::until(kind, TIMEOUT, || async {
            let listed = admin.run(["get", kind, "-A"]).await?;
            let is_served = listed.status.success();
            Ok(if is_served { Probe::Ready(()) } else { Probe::NotYet(listed.stderr) })
        })
        .await?;
    }
    // The aggregation into the roles of people takes a moment.
    admin.until_allowed(&["--as=adm", "list", "llamastackdistributions.llamastack.io"]).await?;
    for role in ["admin", "edit", "view"] {
        probe::until(role, TIMEOUT, || async {
            let found = admin.json(["get", "clusterrole", role]).await?.to_string();
            let has_kinds = found.contains("llamastack.io");
            Ok(if has_kinds { Probe::Ready(()) } else { Probe::NotYet(found) })
        })
        .await?;
    }
    Ok(())
}

/// An InferenceService that people may pick.
pub fn inference_service(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"opendatahub.io/genai-asset": "true"},
            "annotations": {},
        },
        "spec": {},
    })
}

/// Creates an object, or changes it, and writes its status, as an operator does.
///
/// # Errors
/// The API server refuses.
pub async fn apply_with_status(admin: &Kubectl, object: &Value, status: &Value) -> Result<()> {
    admin.run_with_input(["apply", "-f", "-"], object.to_string()).await?.success()?;
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let patch = json!({ "status": status }).to_string();
    let patched = admin.run([
        "patch",
        text("/kind"),
        text("/metadata/name"),
        "-n",
        text("/metadata/namespace"),
        "--subresource=status",
        "--type=merge",
        "-p",
        &patch,
    ]);
    patched.await?.success()?;
    Ok(())
}
