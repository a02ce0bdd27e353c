//! The conformance suite of Kubernetes itself, run with the rights of a whole cluster directly and
//! through the gateway.
//!
//! The suite makes namespaces, roles and custom resources of its own, so it cannot run inside
//! a tenant. Here one tenant's ServiceAccount is bound to `cluster-admin` by the cluster's
//! administrator, in a cluster without our admission policies and through a gateway that leaves every
//! answer to the API server. So the two runs differ in the way only: what passes directly has to pass
//! through the gateway.

mod programs;
mod scheduler;
mod selection;
mod suite;

use std::path::PathBuf;

use anyhow::{Context, Result};

pub use suite::{Outcome, Spec};

use self::programs::Programs;
use crate::kubeconfig;
use crate::measure::gateway::without_limits;
use crate::process::Process;
use crate::world::World;

/// How many specs are selected.
pub const SPECS: usize = selection::SPECS;

/// The ways to the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// With the tenant's token.
    Direct,
    /// With the person's session.
    Gateway,
}

/// A cluster in which the suite can run, and the tenant who may do everything.
#[derive(Debug)]
pub struct Place {
    programs: Programs,
    direct: PathBuf,
    gateway: PathBuf,
    // In the order in which they end.
    _scheduler: Process,
    world: World,
}

impl Place {
    /// Starts it.
    ///
    /// # Errors
    /// A program is missing, or something does not start.
    pub async fn new() -> Result<Self> {
        let programs = Programs::find().await?;
        let builder = World::builder()
            .every_controller()
            .node()
            .tls()
            .setting("log.level", "warn")
            .setting("cluster.allow_missing_policies", true)
            .setting("gateway.own_answers", false);
        let world = without_limits(builder).start().await?;
        let scheduler = scheduler::start(
            &programs.kube_scheduler,
            world.cluster(),
            &world.folder().join("scheduler"),
        )
        .await?;
        let admin = world.admin_kubectl()?;
        let policies = "validatingadmissionpolicybindings,validatingadmissionpolicies";
        admin.run(["delete", policies, "--all"]).await?.success()?;

        let person = world.person("conformance").await?;
        // The last request of a run may be an hour after this.
        let session = person.sign_in().await?;
        let api = world.stranger()?.with_token(session.access_token.clone());
        let (workspace, _) = api.init("basic").await?;
        let subject = format!("--serviceaccount={}:sa-tenant-admin", workspace.namespace);
        let bind = ["create", "clusterrolebinding", "everything", "--clusterrole=cluster-admin"];
        admin.run(bind.iter().copied().chain([subject.as_str()])).await?.success()?;

        let authority = world.cluster().authority().certificate();
        let file = |name: &str| world.folder().join(format!("{name}.kubeconfig"));
        let (direct, gateway) = (file("direct"), file("gateway"));
        let token = api.credential(workspace.id).await?.token.into();
        kubeconfig::write_for_bearer(&direct, world.cluster().url(), authority, &token)?;
        let base = format!("clusters/{}/", workspace.cluster);
        let base = world.broker().public_url()?.join(&base).context("make the gateway's URL")?;
        kubeconfig::write_for_bearer(&gateway, &base, authority, &session.access_token)?;
        Ok(Self { programs, direct, gateway, _scheduler: scheduler, world })
    }

    /// Runs the selection this way.
    ///
    /// # Errors
    /// The suite cannot be run; specs that fail are no error here.
    pub async fn run(&self, way: Way) -> Result<Outcome> {
        let (kubeconfig, name) = match way {
            Way::Direct => (&self.direct, "run-direct"),
            Way::Gateway => (&self.gateway, "run-gateway"),
        };
        suite::run(&self.programs, kubeconfig, &self.world.folder().join(name)).await
    }
}
