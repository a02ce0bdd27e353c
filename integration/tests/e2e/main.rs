//! End-to-end tests over real programs: kube-apiserver, etcd, kube-controller-manager, PostgreSQL,
//! SQLite, kubectl, the broker and the plugin. Faults come from outside.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod account;
mod answers;
mod attacks;
mod audit;
mod backup;
mod credentials;
mod device;
mod doctor;
mod drift;
mod gateway;
mod in_cluster;
mod init;
mod install;
mod isolation;
mod issuance;
mod lookup;
mod machines;
mod metrics;
mod model_roles;
mod model_services;
mod plugin;
mod policies;
mod refusals;
mod reload;
mod renewal;
mod rights;
mod secrets;
mod sign_ins;
mod story;
mod suspension;
mod tenants;
mod unauthenticated;
mod upgrade;

use std::time::Duration;

use anyhow::Context as _;
use integration::api::{ApiError, Refused};
use integration::broker::Broker;
use integration::kubectl::Kubectl;
use integration::probe::{self, Probe};

/// Time limit until all parts of the API server know of a new binding, label or policy.
pub(crate) const RIGHTS_TIMEOUT: Duration = Duration::from_mins(1);

/// Waits until a text is in the broker's log, at most two minutes.
pub(crate) async fn until_logged(broker: &Broker, text: &str) {
    probe::until("a line in the log", Duration::from_mins(2), || async {
        let log = broker.log()?;
        Ok(if log.contains(text) { Probe::Ready(()) } else { Probe::NotYet(format!("no {text}")) })
    })
    .await
    .unwrap();
}

/// Runs a command that changes nothing until a label or a policy that was just written refuses it.
pub(crate) async fn until_refused(person: &Kubectl, args: &[&str], text: &str) {
    probe::until("a refusal", RIGHTS_TIMEOUT, || async {
        let tried = person.run(args).await?;
        let is_refused = !tried.status.success() && tried.stderr.contains(text);
        Ok(if is_refused { Probe::Ready(()) } else { Probe::NotYet(tried.stderr) })
    })
    .await
    .unwrap();
}

/// Runs a command until it is no longer refused.
pub(crate) async fn until_accepted(person: &Kubectl, args: &[&str]) {
    probe::until("no refusal", RIGHTS_TIMEOUT, || async {
        let tried = person.run(args).await?;
        let is_accepted = tried.status.success();
        Ok(if is_accepted { Probe::Ready(()) } else { Probe::NotYet(tried.stderr) })
    })
    .await
    .unwrap();
}

/// Returns the refusal with which this call must have ended.
fn refused<T: std::fmt::Debug>(result: Result<T, ApiError>) -> Refused {
    match result {
        Err(ApiError::Refused(refused)) => *refused,
        other => panic!("this should have been refused: {other:?}"),
    }
}

/// Returns an object of the cluster as an administrator sees it; `None` if it does not exist.
async fn object(
    world: &integration::world::World,
    args: &[&str],
) -> anyhow::Result<Option<serde_json::Value>> {
    let finished = world
        .admin_kubectl()?
        .run(["get", "-o", "json", "--ignore-not-found"].iter().chain(args))
        .await?
        .success()?;
    if finished.stdout.trim().is_empty() {
        return Ok(None);
    }
    serde_json::from_str(&finished.stdout).context("read an object").map(Some)
}

/// Returns the objects of a list.
async fn object_list(
    world: &integration::world::World,
    args: &[&str],
) -> anyhow::Result<Vec<serde_json::Value>> {
    let list = object(world, args).await?.context("kubectl printed no list")?;
    Ok(list["items"].as_array().context("a list has items")?.clone())
}
