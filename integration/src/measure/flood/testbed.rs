//! The testbed of the floods: a broker, a tenant who requests tokens, and workspaces to suspend.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use http::Method;
use reqwest::StatusCode;
use tenant_shared::{SuspendRequest, WorkspaceStatus};
use uuid::Uuid;

use crate::api::Api;
use crate::probe::{self, Probe};
use crate::world::World;

/// Time limit until a workspace is resumed.
const RESUME_TIMEOUT: Duration = Duration::from_mins(1);
/// Time until no request of a flood is in flight: the broker reads a refused body for five seconds.
const SETTLE_TIME: Duration = Duration::from_secs(6);

/// The broker and the accounts of the measurement.
#[derive(Debug)]
pub struct FloodTestbed {
    world: World,
    broker: SocketAddr,
    pid: u32,
    operator: Api,
    tenant: Api,
    workspace: Uuid,
    to_suspend: Vec<Uuid>,
}

impl FloodTestbed {
    /// Creates the accounts in this world, and this number of workspaces to suspend.
    ///
    /// # Errors
    /// A call fails.
    pub async fn new(world: World, suspensions: usize) -> Result<Self> {
        let operator = world.administrator("operator").await?.api().await?;
        let tenant = world.person("tenant").await?.api().await?;
        let (workspace, _) = tenant.init("basic").await?;
        let mut to_suspend = Vec::with_capacity(suspensions);
        for number in 0..suspensions {
            let person = world.person(&format!("suspended-{number}")).await?.api().await?;
            to_suspend.push(person.init("basic").await?.0.id);
        }
        let broker = world.broker().url()?;
        let address = broker.socket_addrs(|| None)?.into_iter().next();
        Ok(Self {
            broker: address.context("the broker has no address")?,
            pid: world.broker().pid().context("the broker has stopped")?,
            operator,
            tenant,
            workspace: workspace.id,
            to_suspend,
            world,
        })
    }

    pub(super) fn broker(&self) -> SocketAddr {
        self.broker
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    pub(super) fn operator(&self) -> &Api {
        &self.operator
    }

    pub(super) fn to_suspend(&self) -> &[Uuid] {
        &self.to_suspend
    }

    pub(super) fn flood_program(&self) -> PathBuf {
        self.world.binaries().flood()
    }

    /// Requests a token.
    pub(super) async fn issue(&self) -> Result<StatusCode> {
        let path = format!("workspaces/{}/credentials", self.workspace);
        let answer = self.tenant.request(Method::POST, &path)?.send().await?;
        let status = answer.status();
        answer.bytes().await?;
        Ok(status)
    }

    /// Resumes all workspaces, as soon as the broker allows it.
    pub(super) async fn resume_all(&self) -> Result<()> {
        for id in &self.to_suspend {
            probe::until("a workspace to be resumed", RESUME_TIMEOUT, || async {
                if self.operator.workspace(*id).await?.status == WorkspaceStatus::Provisioned {
                    return Ok(Probe::Ready(()));
                }
                let reason = SuspendRequest { reason: None };
                Ok(match self.operator.resume(*id, &reason).await {
                    Ok(resumed) if resumed.status == WorkspaceStatus::Provisioned => {
                        Probe::Ready(())
                    }
                    Ok(resumed) => Probe::NotYet(format!("{resumed:?}")),
                    Err(error) => Probe::NotYet(format!("{error}")),
                })
            })
            .await?;
        }
        Ok(())
    }

    /// Waits until no request of a flood is in flight.
    pub(super) async fn settle(&self) {
        tokio::time::sleep(SETTLE_TIME).await;
    }
}
