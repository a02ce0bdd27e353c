//! The broker's start and its admission policies: it runs only where they are in force.

use std::time::Duration;

use integration::kubectl::Kubectl;
use integration::probe::{self, Probe};
use integration::world::World;

use crate::until_logged;

const BINDING: &str = "validatingadmissionpolicybinding";
const WEAKER: &str = r#"{"spec":{"validationActions":["Warn"]}}"#;

async fn until_metric(world: &World, line: &str) {
    probe::until("the metric", Duration::from_secs(30), || async {
        let metrics = world.broker().metrics().await?;
        let there = metrics.lines().any(|there| there == line);
        Ok(if there { Probe::Ready(()) } else { Probe::NotYet(format!("no {line}")) })
    })
    .await
    .unwrap();
}

async fn weaken(admin: &Kubectl) {
    let args = ["patch", BINDING, "tenant-guard-secrets", "-p", WEAKER];
    admin.run(args).await.unwrap().success().unwrap();
}

#[tokio::test]
async fn the_broker_does_not_start_with_missing_or_weakened_policies_unless_configured_to() {
    let world =
        World::builder().own_control_plane().setting("sweep_seconds", 1).start().await.unwrap();
    let (admin, broker) = (world.admin_kubectl().unwrap(), world.broker());
    until_metric(&world, "tenant_broker_policies_in_force 1").await;

    // A running broker continues, and reports it.
    weaken(&admin).await;
    until_metric(&world, "tenant_broker_policies_in_force 0").await;
    until_logged(broker, "admission policies missing or changed").await;

    broker.stop().await.unwrap();
    let delete = ["delete", "validatingadmissionpolicy", "tenant-tokens"];
    admin.run(delete).await.unwrap().success().unwrap();
    let refused = format!("{:#}", broker.start().await.unwrap_err());
    for part in [
        "the binding tenant-guard-secrets is not as this version makes it (spec.validationActions)",
        "the policy tenant-tokens is missing",
        "tenant-broker install",
        "cluster.allow_missing_policies",
    ] {
        assert!(refused.contains(part), "{part} is not in: {refused}");
    }

    broker.set("cluster.allow_missing_policies", true);
    broker.start().await.unwrap();
    until_metric(&world, "tenant_broker_policies_in_force 0").await;
}

#[tokio::test]
async fn the_broker_does_not_start_as_a_user_that_its_policies_do_not_name() {
    let world = World::builder().start().await.unwrap();
    let broker = world.broker();
    broker.stop().await.unwrap();
    broker.set("cluster.identity", "somebody-else");
    let refused = format!("{:#}", broker.start().await.unwrap_err());
    assert!(refused.contains("knows the broker as tenant-broker"), "{refused}");
}

#[tokio::test]
async fn with_the_cluster_down_the_broker_starts_and_checks_the_policies_later() {
    let world = World::builder().own_control_plane().fault_proxy().start().await.unwrap();
    let broker = world.broker();
    broker.stop().await.unwrap();
    world.proxy().unwrap().down().await;
    broker.start().await.unwrap();
    weaken(&world.admin_kubectl().unwrap()).await;
    world.proxy().unwrap().up().await.unwrap();
    probe::until("the broker to end", Duration::from_secs(40), || async {
        Ok(if broker.is_running() { Probe::NotYet("it runs".to_owned()) } else { Probe::Ready(()) })
    })
    .await
    .unwrap();
    let log = broker.log().unwrap();
    assert!(log.contains("error: the cluster's admission policies are not what"), "{log}");
}

#[tokio::test]
async fn the_right_on_secrets_follows_the_setting() {
    let world = World::builder().own_control_plane().bind_tokens().start().await.unwrap();
    let (admin, broker) = (world.admin_kubectl().unwrap(), world.broker());
    let doctor = async |expected: &str| {
        let report = broker.run(&["doctor"]).await.unwrap();
        assert!(report.stdout.contains(expected), "{expected}: {}", report.stdout);
    };
    doctor("may create secrets").await;

    // Switched off while the right still exists, as during the deletion of the last Secrets: the
    // broker warns.
    broker.stop().await.unwrap();
    broker.set("cluster.bind_tokens_to_secrets", false);
    broker.start().await.unwrap();
    let said = "the broker may create and delete Secrets although cluster.bind_tokens_to_secrets";
    assert!(broker.log().unwrap().contains(said));
    doctor("WARN  has no right on Secrets that it does not need").await;

    // Without its own policies the broker does not start.
    broker.stop().await.unwrap();
    let delete = ["delete", "validatingadmissionpolicy", "tenant-broker-fence-secrets"];
    admin.run(delete).await.unwrap().success().unwrap();
    let refused = format!("{:#}", broker.start().await.unwrap_err());
    assert!(refused.contains("no admission policy restricts that"), "{refused}");

    // Objects that `install` of this configuration removes are not required.
    let kubeconfig = world.cluster().admin_kubeconfig().display().to_string();
    let apply = ["install", "--apply", "--kubeconfig", &kubeconfig];
    broker.run(&apply).await.unwrap().success().unwrap();
    broker.start().await.unwrap();
    doctor("pass  has no right on Secrets that it does not need").await;

    // Switched on without the right, it does not start either.
    broker.stop().await.unwrap();
    broker.set("cluster.bind_tokens_to_secrets", true);
    let refused = format!("{:#}", broker.start().await.unwrap_err());
    assert!(refused.contains("the broker may not create and delete Secrets"), "{refused}");
    assert!(refused.contains("policy tenant-broker-fence-secrets"), "{refused}");
}
