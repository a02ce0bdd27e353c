//! nginx as a reverse proxy in front of the API server: the baseline.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use url::Url;

use crate::control_plane::ControlPlane;
use crate::machine;
use crate::port;
use crate::probe::{self, Probe};
use crate::process::{Process, Program};
use crate::scratch::{private_folder, write_private};
use crate::search_path::find_in;

const READY_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_PORT_ATTEMPTS: u32 = 5;

/// A running nginx.
#[derive(Debug)]
pub(super) struct Nginx {
    process: Process,
    /// Address for single requests.
    pub(super) url: Url,
    /// Address for streams, which are not buffered.
    pub(super) for_streams: Url,
}

impl Nginx {
    /// Starts Debian's nginx with its files in `folder`.
    ///
    /// # Errors
    /// nginx is not installed (the message has the install command), or does not start.
    pub(super) async fn start(cluster: &ControlPlane, folder: &Path) -> Result<Self> {
        // Debian installs it in a folder that only root's PATH has.
        let program = machine::find("nginx")
            .or_else(|| find_in("/usr/sbin:/usr/local/sbin".as_ref(), "nginx"))
            .context(
                "nginx is not on PATH. Install it:\n    \
                 Debian, Ubuntu: apt-get install --no-install-recommends nginx\n    \
                 macOS: brew install nginx",
            )?;
        private_folder(folder)?;
        let identity = cluster.authority().server("nginx")?;
        write_private(&folder.join("nginx.crt"), identity.certificate)?;
        write_private(&folder.join("nginx.key"), identity.key)?;
        write_private(&folder.join("ca.crt"), cluster.authority().certificate())?;
        for _ in 0..MAX_PORT_ATTEMPTS {
            let port = port::free()?;
            let ports = [port, port::free()?];
            let configuration = configuration(cluster.url(), folder, ports)?;
            write_private(&folder.join("nginx.conf"), configuration)?;
            let process = Program::new(&program)
                .args(["-c", "nginx.conf", "-e", "error.log", "-p"])
                .arg(folder)
                .spawn_logged(&folder.join("error.log"))?;
            let answers = until_answering(&process, ports).await;
            if answers.is_err() && port::is_taken(&process.log_tail(20)) {
                continue;
            }
            answers?;
            let [url, for_streams] =
                ports.map(|port| format!("https://127.0.0.1:{port}/").parse::<Url>());
            return Ok(Self { process, url: url?, for_streams: for_streams? });
        }
        bail!("every port that was free was taken before nginx could listen on it")
    }

    /// Process ids of the master and its workers.
    pub(super) fn processes(&self) -> Result<Vec<u32>> {
        let master = self.process.pid();
        let mut processes = vec![master];
        for entry in std::fs::read_dir("/proc").context("list the processes")? {
            let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            // The process may have ended since.
            let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
            let parent = status.unwrap_or_default().lines().find_map(|line| {
                line.strip_prefix("PPid:").and_then(|parent| parent.trim().parse::<u32>().ok())
            });
            if parent == Some(master) {
                processes.push(pid);
            }
        }
        Ok(processes)
    }
}

async fn until_answering(process: &Process, ports: [u16; 2]) -> Result<()> {
    probe::until("nginx to listen", READY_TIMEOUT, || async {
        process.still_running()?;
        for port in ports {
            if let Err(error) = tokio::net::TcpStream::connect(("127.0.0.1", port)).await {
                return Ok(Probe::NotYet(error.to_string()));
            }
        }
        Ok(Probe::Ready(()))
    })
    .await
    .with_context(|| process.log_tail(20))
}

/// TLS on both sides, kept connections, the access log on as in Debian's default, the client's
/// token passed on. nginx compares certificate names only, no addresses. One server buffers
/// responses as nginx does by default, the other does not.
fn configuration(upstream: &Url, folder: &Path, ports: [u16; 2]) -> Result<String> {
    let folder = folder.display();
    let upstream = upstream.authority();
    let mut text = format!(
        "daemon off;
pid {folder}/nginx.pid;
worker_processes auto;
worker_rlimit_nofile 8192;
events {{ worker_connections 4096; }}
http {{
  access_log {folder}/access.log;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  tcp_nodelay on;
  keepalive_requests 100000000;
  keepalive_timeout 1h;
  upstream api {{
    server {upstream};
    keepalive 128;
    keepalive_requests 100000000;
  }}
  ssl_certificate {folder}/nginx.crt;
  ssl_certificate_key {folder}/nginx.key;
  proxy_http_version 1.1;
  proxy_set_header Connection \"\";
  proxy_set_header Host $http_host;
  proxy_ssl_trusted_certificate {folder}/ca.crt;
  proxy_ssl_verify on;
  proxy_ssl_name localhost;
  proxy_read_timeout 1h;
  proxy_buffer_size 16k;
  proxy_buffers 64 16k;
  proxy_busy_buffers_size 256k;
  proxy_max_temp_file_size 0;
"
    );
    for (port, buffering) in ports.into_iter().zip(["on", "off"]) {
        writeln!(
            text,
            "  server {{
    listen 127.0.0.1:{port} ssl;
    location / {{ proxy_pass https://api; proxy_buffering {buffering}; }}
  }}"
        )?;
    }
    text.push_str("}\n");
    Ok(text)
}
