//! The Kubernetes conformance suite, run with the rights of a cluster administrator directly and
//! through the gateway.
//!
//! The suite makes namespaces, roles and custom resources of its own, so it cannot run inside a
//! tenant. The cluster's administrator therefore binds one tenant's ServiceAccount to
//! `cluster-admin`, in a cluster without our admission policies and behind a gateway that
//! synthesizes no responses. The two runs differ only in the route: a spec that passes directly has
//! to pass through the gateway.

mod programs;
mod scheduler;
mod selection;
mod suite;

use std::path::PathBuf;

use anyhow::{Context, Result};

pub use suite::{SpecResult, SuiteResult};

use self::programs::Programs;
use crate::kubeconfig;
use crate::measure::gateway::without_limits;
use crate::process::Process;
use crate::world::World;

/// Number of selected specs.
pub const SPEC_COUNT: usize = selection::SPEC_COUNT;

/// The routes to the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Directly, with the tenant's token.
    Direct,
    /// Through the gateway, with the person's session.
    Gateway,
}

/// A cluster in which the suite can run, with a tenant who is cluster administrator.
#[derive(Debug)]
pub struct ConformanceCluster {
    programs: Programs,
    direct: PathBuf,
    gateway: PathBuf,
    // Fields are in drop order.
    _scheduler: Process,
    world: World,
}

impl ConformanceCluster {
    /// Starts the cluster.
    ///
    /// # Errors
    /// A program is missing, or a part does not start.
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
        // The last request of a run may come an hour after this.
        let session = person.sign_in().await?;
        let api = world.anonymous_api()?.with_token(session.access_token.clone());
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

    /// Runs the selected specs on this route.
    ///
    /// # Errors
    /// The suite cannot be run; a failed spec is no error here.
    pub async fn run(&self, route: Route) -> Result<SuiteResult> {
        let (kubeconfig, name) = match route {
            Route::Direct => (&self.direct, "run-direct"),
            Route::Gateway => (&self.gateway, "run-gateway"),
        };
        suite::run(&self.programs, kubeconfig, &self.world.folder().join(name)).await
    }
}
