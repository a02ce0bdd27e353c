//! kube-scheduler: without it only pods that name their node run.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::Signal;

use crate::control_plane::ControlPlane;
use crate::http_client::http_client;
use crate::port;
use crate::probe::{self, Probe};
use crate::process::{Process, Program};
use crate::scratch::{private_folder, write_private};

/// User of the scheduler (Kubernetes documentation, "Using RBAC authorization", core component
/// roles).
const USER: &str = "system:kube-scheduler";
/// Time limit until it is ready; it needs a second or two.
const READY_TIMEOUT: Duration = Duration::from_mins(1);
/// Number of attempts with another port.
const MAX_PORT_ATTEMPTS: u32 = 5;

/// Starts the scheduler of this control plane, with its files in `folder`, and waits until it is
/// ready. It ends when the value is dropped.
pub(super) async fn start(
    program: &Path,
    cluster: &ControlPlane,
    folder: &Path,
) -> Result<Process> {
    private_folder(folder)?;
    let kubeconfig = cluster.kubeconfig_for(USER, None, folder)?;
    let flag = |name: &str| {
        let mut flag = std::ffi::OsString::from(format!("--{name}="));
        flag.push(&kubeconfig);
        flag
    };
    let serving = cluster.authority().server("kube-scheduler")?;
    write_private(&folder.join("tls.crt"), serving.certificate)?;
    write_private(&folder.join("tls.key"), serving.key)?;
    for _ in 0..MAX_PORT_ATTEMPTS {
        let port = port::free()?;
        let process = Program::new(program)
            .args(["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"].map(flag))
            .args(["--bind-address=127.0.0.1", "--leader-elect=false"])
            .args(["--tls-cert-file=tls.crt", "--tls-private-key-file=tls.key"])
            .arg(format!("--secure-port={port}"))
            .stop_with(Signal::KILL, Duration::from_secs(5))
            .in_folder(folder)
            .spawn_logged(&folder.join("kube-scheduler.log"))?;
        match ready(&process, cluster, port).await {
            Ok(()) => return Ok(process),
            Err(_) if process.status().is_some() && port::is_taken(&process.log_tail(20)) => {}
            Err(error) => return Err(error),
        }
    }
    bail!("every port that was free was taken before kube-scheduler could listen on it")
}

async fn ready(process: &Process, cluster: &ControlPlane, port: u16) -> Result<()> {
    let http = http_client(Some(cluster.authority().certificate()))?;
    let readyz = format!("https://127.0.0.1:{port}/readyz");
    probe::until("kube-scheduler to be ready", READY_TIMEOUT, || async {
        process.still_running()?;
        Ok(match http.get(&readyz).send().await {
            Ok(answer) if answer.status().is_success() => Probe::Ready(()),
            Ok(answer) => Probe::NotYet(format!("/readyz answers {}", answer.status())),
            Err(error) => Probe::NotYet(format!("{error}")),
        })
    })
    .await
    .with_context(|| process.log_tail(20))
}
