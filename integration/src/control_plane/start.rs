//! The start of the three programs of a control plane in a folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::Api;
use rustix::process::Signal;
use tokio::sync::OnceCell;
use url::Url;

use super::{BROKER_USER, ControlPlane, ControlPlaneOptions, Programs, client};
use crate::authority::{self, Authority};
use crate::http_client::http_client;
use crate::probe::{self, Probe};
use crate::process::{Process, Program};
use crate::scratch::{Scratch, write_private};
use crate::{kubeconfig, port};

/// Time limit until the API server is ready; it takes 2 to 4 s on an idle machine.
const READY_TIMEOUT: Duration = Duration::from_secs(90);
/// Number of attempts with another port.
const MAX_PORT_ATTEMPTS: u32 = 5;
/// Issuer of ServiceAccount tokens, as kubeadm sets it.
const ISSUER: &str = "https://kubernetes.default.svc";
/// etcd's address: a socket named `etcd:0` in the folder that both programs run in. With a TCP port
/// every user of the machine could write into the cluster without a password.
const ETCD: &str = "unix://etcd:0";
/// The controllers that a workspace needs: ClusterRole `admin` filled, quotas counted, namespaces
/// ended, the default ServiceAccount created, token Secrets filled, the broker's certificate
/// signed, pods of Deployments created. All controllers together take 5 s longer.
const CONTROLLERS: &str = "clusterrole-aggregation-controller,namespace-controller,\
    resourcequota-controller,serviceaccount-controller,serviceaccount-token-controller,\
    certificatesigningrequest-signing-controller,deployment-controller,replicaset-controller";
/// File of [`ControlPlaneOptions::token_users`] in the folder.
const TOKEN_USERS: &str = "token-users.csv";
/// Audit policy: user, object and time of every request, without bodies.
const AUDIT_POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\n\
    omitStages: [RequestReceived]\nrules: [{level: Metadata}]\n";

/// A control plane that is being started.
struct Start<'a> {
    programs: &'a Programs,
    folder: PathBuf,
    extra_flags: Vec<String>,
    has_token_users: bool,
    controllers: &'static str,
}

pub(super) async fn start(
    programs: &Programs,
    options: ControlPlaneOptions,
) -> Result<ControlPlane> {
    let scratch = match &options.folder {
        Some(folder) => Scratch::kept(folder)?,
        None => Scratch::new("control-plane")?,
    };
    let folder = scratch.path().to_owned();
    let authority = Authority::open(&folder)?;
    write_keys(&folder, &authority)?;
    let controllers = if options.every_controller { "*" } else { CONTROLLERS };
    let has_token_users = !options.token_users.is_empty();
    if has_token_users {
        write_private(&folder.join(TOKEN_USERS), &options.token_users)?;
    }
    let extra_flags = options.apiserver_flags;
    let start = Start { programs, folder, extra_flags, has_token_users, controllers };
    let etcd = start.etcd()?;
    let (url, api_server) = start.api_server_on_a_free_port(&authority, &etcd).await?;

    let file = |name: &str| start.folder.join(format!("{name}.kubeconfig"));
    let write = |name: &str, user: &str, group| {
        let identity = authority.client(user, group)?;
        kubeconfig::write(&file(name), &url, authority.certificate(), user, &identity)?;
        anyhow::Ok(identity)
    };
    write("admin", "admin", Some("system:masters"))?;
    let broker = write("broker", BROKER_USER, None)?;
    write("controller-manager", "system:kube-controller-manager", None)?;

    let controller_manager = start.controller_manager(&file("controller-manager"))?;
    roles_are_aggregated(&file("admin"), &controller_manager).await?;
    Ok(ControlPlane {
        controller_manager,
        api_server,
        etcd,
        url,
        authority,
        broker,
        admin_kubeconfig: file("admin"),
        broker_kubeconfig: file("broker"),
        install_settings: options.installed,
        installed: OnceCell::new(),
        scratch,
    })
}

/// Writes the keys and settings that the programs read from files. The key of ServiceAccount tokens
/// stays the same in a kept folder.
fn write_keys(folder: &Path, authority: &Authority) -> Result<()> {
    let serving = authority.server("kube-apiserver")?;
    write_private(&folder.join("apiserver.crt"), serving.certificate)?;
    write_private(&folder.join("apiserver.key"), serving.key)?;
    if !folder.join("serviceaccount.key").exists() {
        let (private, public) = authority::signing_key()?;
        write_private(&folder.join("serviceaccount.pub"), public)?;
        write_private(&folder.join("serviceaccount.key"), private)?;
    }
    fs::write(folder.join("audit-policy.yaml"), AUDIT_POLICY).context("write the audit policy")
}

impl Start<'_> {
    fn spawn(&self, program: Program, log: &str) -> Result<Process> {
        // Many control planes start in a run, so they use memory rather than CPU for their garbage.
        program
            .env("GOGC", "400")
            .env("GOMEMLIMIT", "1GiB")
            .in_folder(&self.folder)
            .spawn_logged(&self.folder.join(log))
    }

    fn etcd(&self) -> Result<Process> {
        // Removes the sockets of an earlier run in a kept folder.
        for socket in ["etcd:0", "peer:0"] {
            let _ = fs::remove_file(self.folder.join(socket));
        }
        let program = Program::new(&self.programs.etcd.path)
            .args(["--name=development", "--data-dir=etcd", "--log-level=warn"])
            // Only a power failure could lose data, and then the whole cluster is lost anyway.
            .arg("--unsafe-no-fsync")
            .arg(format!("--listen-client-urls={ETCD}"))
            .arg(format!("--advertise-client-urls={ETCD}"))
            .arg("--listen-peer-urls=unix://peer:0")
            .stop_with(Signal::TERM, Duration::from_secs(3));
        self.spawn(program, "etcd.log")
    }

    async fn api_server_on_a_free_port(
        &self,
        authority: &Authority,
        etcd: &Process,
    ) -> Result<(Url, Process)> {
        let port_file = self.folder.join("port");
        let kept = fs::read_to_string(&port_file).ok().and_then(|text| text.trim().parse().ok());
        let mut port = match kept {
            // Kubeconfigs of an earlier run in a kept folder keep working.
            Some(kept) => port::prefer(kept)?,
            None => port::free()?,
        };
        for _ in 0..MAX_PORT_ATTEMPTS {
            let url: Url = format!("https://127.0.0.1:{port}/").parse().context("make a URL")?;
            let server = self.api_server(port)?;
            match ready(&url, authority, &server, etcd).await {
                Ok(()) => {
                    fs::write(&port_file, port.to_string()).context("write the port")?;
                    return Ok((url, server));
                }
                Err(_) if server.status().is_some() && port::is_taken(&server.log_tail(20)) => {
                    port = port::free()?;
                }
                Err(error) => return Err(error),
            }
        }
        bail!("every port that was free was taken before kube-apiserver could listen on it")
    }

    fn api_server(&self, port: u16) -> Result<Process> {
        let program = Program::new(&self.programs.kube_apiserver.path)
            .arg(format!("--etcd-servers={ETCD}"))
            .args(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1"])
            .arg(format!("--secure-port={port}"))
            .args(["--tls-cert-file=apiserver.crt", "--tls-private-key-file=apiserver.key"])
            .arg("--client-ca-file=ca.crt")
            // Without RBAC everybody may do everything, and every test of rights passes.
            .arg("--authorization-mode=RBAC")
            .arg(format!("--service-account-issuer={ISSUER}"))
            .arg("--service-account-key-file=serviceaccount.pub")
            .arg("--service-account-signing-key-file=serviceaccount.key")
            .args(["--service-cluster-ip-range=10.0.0.0/24", "--endpoint-reconciler-type=none"])
            // As in real clusters; without it a missing pod-security label would go unnoticed.
            .arg("--allow-privileged=true")
            .args(["--audit-policy-file=audit-policy.yaml", "--audit-log-path=audit.log"])
            .args(self.has_token_users.then(|| format!("--token-auth-file={TOKEN_USERS}")))
            .args(&self.extra_flags)
            // The API server holds no state, and its own shutdown waits for every open watch.
            .stop_with(Signal::KILL, Duration::from_secs(5));
        self.spawn(program, "kube-apiserver.log")
    }

    fn controller_manager(&self, kubeconfig: &Path) -> Result<Process> {
        let flag = |name: &str| {
            let mut flag = std::ffi::OsString::from(format!("--{name}="));
            flag.push(kubeconfig);
            flag
        };
        let program = Program::new(&self.programs.kube_controller_manager.path)
            .args(["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"].map(flag))
            // No port of its own: the roles that it fills show that it works.
            .args(["--secure-port=0", "--leader-elect=false"])
            // Without this flag the aggregation controller may not write roles.
            .arg("--use-service-account-credentials=true")
            .arg("--service-account-private-key-file=serviceaccount.key")
            .arg("--root-ca-file=ca.crt")
            .args(["--cluster-signing-cert-file=ca.crt", "--cluster-signing-key-file=ca.key"])
            .arg(format!("--controllers={}", self.controllers))
            .stop_with(Signal::KILL, Duration::from_secs(5));
        self.spawn(program, "kube-controller-manager.log")
    }
}

async fn ready(url: &Url, authority: &Authority, server: &Process, etcd: &Process) -> Result<()> {
    let http = http_client(Some(authority.certificate()))?;
    let readyz = url.join("readyz").context("make a URL")?;
    probe::until("kube-apiserver to be ready", READY_TIMEOUT, || async {
        etcd.still_running()?;
        server.still_running()?;
        Ok(match http.get(readyz.clone()).send().await {
            Ok(answer) if answer.status().is_success() => Probe::Ready(()),
            Ok(answer) => Probe::NotYet(format!("/readyz answers {}", answer.status())),
            Err(error) => Probe::NotYet(format!("{error}")),
        })
    })
    .await
    .with_context(|| server.log_tail(20))
}

/// Waits until ClusterRole `admin` has every rule of the roles that it aggregates. Before that it
/// is empty, and a broker without the right to bind it would pass every test.
async fn roles_are_aggregated(admin: &Path, controller_manager: &Process) -> Result<()> {
    let cluster_roles: Api<ClusterRole> = Api::all(client(admin).await?);
    let rules = |name: &'static str| {
        let roles = cluster_roles.clone();
        async move {
            let role = roles.get(name).await.with_context(|| format!("read ClusterRole {name}"))?;
            anyhow::Ok(role.rules.unwrap_or_default())
        }
    };
    let mut parts: Vec<PolicyRule> = Vec::new();
    for part in
        ["system:aggregate-to-admin", "system:aggregate-to-edit", "system:aggregate-to-view"]
    {
        parts.extend(rules(part).await?);
    }
    probe::until("ClusterRole admin to be aggregated", READY_TIMEOUT, || async {
        controller_manager.still_running()?;
        let admin = rules("admin").await?;
        let missing = parts.iter().filter(|rule| !admin.contains(rule)).count();
        Ok(match missing {
            0 if !parts.is_empty() => Probe::Ready(()),
            _ => Probe::NotYet(format!("{missing} of {} rules are missing", parts.len())),
        })
    })
    .await
    .with_context(|| controller_manager.log_tail(20))
}
