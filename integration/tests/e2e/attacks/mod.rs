//! Attacks on the real control plane, under the rights and policies that `install` creates: with
//! the broker's own credential, and as a tenant.

mod as_broker;
mod as_tenant;
mod held_bindings;
pub(crate) mod llama_stacks;
mod network;
mod quota;
mod releases;
mod steps;
mod subresources;
mod suspension;
mod unprintable_names;
mod workload;

use std::time::Duration;

use integration::kubectl::Kubectl;
use integration::probe::{self, Probe};

/// Time limit until the API server admits by a changed policy, label or quota.
const ADMISSION_TIMEOUT: Duration = Duration::from_mins(1);

/// A command, and the text that identifies the component that must refuse it: RBAC, a policy by its
/// name, or the pod security level.
type ExpectedRefusal<'a> = (&'a [&'a str], &'a str);

/// Runs each command and checks that the expected component refuses it.
async fn are_refused(kubectl: &Kubectl, attempts: &[ExpectedRefusal<'_>]) {
    for (args, who) in attempts {
        let finished = kubectl.run(*args).await.unwrap();
        assert!(!finished.status.success(), "{args:?} should be refused");
        assert!(
            finished.stderr.contains("orbidden") && finished.stderr.contains(who),
            "{args:?} should be refused by {who}: {}",
            finished.stderr
        );
    }
}

/// Checks the same for an object that is sent as it is.
async fn is_refused(kubectl: &Kubectl, args: &[&str], object: &serde_json::Value, who: &str) {
    let finished = kubectl.run_with_input(args, object.to_string()).await.unwrap();
    assert!(!finished.status.success(), "{object} should be refused");
    assert!(
        finished.stderr.contains("orbidden") && finished.stderr.contains(who),
        "{object} should be refused by {who}: {}",
        finished.stderr
    );
}

/// Tries to create an object, without an effect, until the API server refuses it with this text: it
/// follows a changed policy, label or quota a moment later.
async fn until_creation_is_refused(kubectl: &Kubectl, object: &serde_json::Value, text: &str) {
    let dry = ["create", "--dry-run=server", "-f", "-"];
    probe::until("the refusal of an object", ADMISSION_TIMEOUT, || async {
        let tried = kubectl.run_with_input(dry, object.to_string()).await?;
        let is_refused = !tried.status.success() && tried.stderr.contains(text);
        Ok(if is_refused { Probe::Ready(()) } else { Probe::NotYet(tried.stderr) })
    })
    .await
    .unwrap();
}

/// Sends a TokenRequest with this `spec` as kubectl's user.
async fn token_is_refused(
    kubectl: &Kubectl,
    namespace: &str,
    account: &str,
    spec: &serde_json::Value,
    who: &str,
) {
    let request = serde_json::json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec,
    });
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
    is_refused(kubectl, &["create", "--raw", &path, "-f", "-"], &request, who).await;
}
