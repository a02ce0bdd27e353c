//! A program in the environment of a pod's container, as a kubelet makes it: the projected volume
//! with the ServiceAccount's token and the cluster's CA, and the variables that describe Services.
//!
//! There is no kubelet and no container. The program runs in a mount namespace of its own (Linux),
//! in which the volume has its usual path, so that the path itself is tested as well.

use std::net::Ipv6Addr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use kube::api::ObjectMeta;
use secrecy::{ExposeSecret as _, SecretString};

use crate::control_plane::ControlPlane;
use crate::machine;
use crate::mounted_secret::MountedSecret;
use crate::process::Program;

/// The folder in which every container finds the volume of its pod's ServiceAccount.
pub const SERVICE_ACCOUNT_FOLDER: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Shell script that mounts the folder `$2` at the path `$1` below `/var/run`, and becomes the
/// program `$3` with its arguments. If the path does not exist, an empty file system hides
/// `/var/run`.
const MOUNT: &str = "test -d \"$1\" \
    || { mount -t tmpfs tmpfs /var/run && mkdir -p \"$1\"; } || exit 126\n\
    mount --bind \"$2\" \"$1\" || exit 126\n\
    shift 2\n\
    exec \"$@\"\n";
/// Time limit of the check that a mount namespace can be made.
const CHECK_TIMEOUT: Duration = Duration::from_secs(20);

/// The volume and the environment of one container.
#[derive(Clone, Debug)]
pub struct Pod {
    volume: MountedSecret,
    namespace: String,
    authority: String,
    environment: Vec<(String, String)>,
}

impl Pod {
    /// Writes the volume of a pod in this namespace into `folder`, with this token. The environment
    /// describes the Service `kubernetes`: the API server's address.
    ///
    /// # Errors
    /// The volume cannot be written, or no mount namespace can be made; the message says what that
    /// needs.
    pub async fn new(
        cluster: &ControlPlane,
        namespace: &str,
        token: &SecretString,
        folder: &Path,
    ) -> Result<Self> {
        let authority = cluster.authority().certificate();
        let pod = Self {
            volume: MountedSecret::new(folder, &files(token, authority, namespace))?,
            namespace: namespace.to_owned(),
            authority: authority.to_owned(),
            environment: service_variables(&kubernetes_service(cluster)?),
        };
        pod.check().await?;
        Ok(pod)
    }

    /// Adds the variables of a Service in the pod's namespace.
    #[must_use]
    pub fn with_service(mut self, service: &Service) -> Self {
        self.environment.extend(service_variables(service));
        self
    }

    /// Replaces the token, as a kubelet does when it rotates it.
    ///
    /// # Errors
    /// The volume cannot be written.
    pub fn write_token(&self, token: &SecretString) -> Result<()> {
        self.volume.replace(&files(token, &self.authority, &self.namespace))
    }

    /// Returns this program as the pod's container would run it.
    pub fn program(&self, path: &Path) -> Program {
        // An ordinary user may mount in a user namespace, in which it is root.
        let is_root = rustix::process::geteuid().is_root();
        let program = Program::new("unshare")
            .args((!is_root).then_some("--map-root-user"))
            .args(["--mount", "--", "/bin/sh", "-c", MOUNT, "sh", SERVICE_ACCOUNT_FOLDER])
            .arg(self.volume.folder())
            .arg(path);
        self.environment.iter().fold(program, |program, (name, value)| program.env(name, value))
    }

    async fn check(&self) -> Result<()> {
        machine::find("unshare").context(
            "unshare is not on PATH, which makes the mount namespace of a pod; install it (Linux \
             only): apt-get install util-linux",
        )?;
        let tried = self
            .program(Path::new("/bin/sh"))
            .args(["-c", "test -s \"$0/token\"", SERVICE_ACCOUNT_FOLDER])
            .run(CHECK_TIMEOUT)
            .await?;
        ensure!(
            tried.status.success(),
            "no mount namespace can be made, in which a program finds {SERVICE_ACCOUNT_FOLDER} \
             ({}): {}\nRun as root, or allow user namespaces to ordinary users (sysctl \
             user.max_user_namespaces; on Debian kernel.unprivileged_userns_clone=1, on Ubuntu \
             kernel.apparmor_restrict_unprivileged_userns=0). In a container this needs \
             CAP_SYS_ADMIN",
            tried.status,
            tried.stderr
        );
        Ok(())
    }
}

/// Returns the files of the volume with their contents.
fn files<'a>(
    token: &'a SecretString,
    authority: &'a str,
    namespace: &'a str,
) -> [(&'a str, &'a str); 3] {
    [("token", token.expose_secret()), ("ca.crt", authority), ("namespace", namespace)]
}

/// Returns the Service `kubernetes`, with the API server's own address as its IP address.
fn kubernetes_service(cluster: &ControlPlane) -> Result<Service> {
    let url = cluster.url();
    let address = url.host_str().context("the API server's URL has no host")?;
    let port = url.port_or_known_default().context("the API server's URL has no port")?;
    let port =
        ServicePort { name: Some("https".into()), port: port.into(), ..ServicePort::default() };
    Ok(Service {
        metadata: ObjectMeta { name: Some("kubernetes".into()), ..ObjectMeta::default() },
        spec: Some(ServiceSpec {
            cluster_ip: Some(address.to_owned()),
            ports: Some(vec![port]),
            ..ServiceSpec::default()
        }),
        status: None,
    })
}

/// Returns the environment variables with which a kubelet describes a Service to the containers of
/// its namespace (Kubernetes, `pkg/kubelet/envvars`); none for a Service without an IP address.
pub fn service_variables(service: &Service) -> Vec<(String, String)> {
    let prefix = variable_part(service.metadata.name.as_deref().unwrap_or_default());
    let spec = service.spec.as_ref();
    let address = spec.and_then(|spec| spec.cluster_ip.as_deref()).unwrap_or_default();
    let ports = spec.and_then(|spec| spec.ports.as_deref()).unwrap_or_default();
    let Some(first) = ports.first().filter(|_| !["", "None"].contains(&address)) else {
        return Vec::new();
    };
    let mut variables = vec![
        (format!("{prefix}_SERVICE_HOST"), address.to_owned()),
        (format!("{prefix}_SERVICE_PORT"), first.port.to_string()),
        (format!("{prefix}_PORT"), link(address, first)),
    ];
    for port in ports {
        let number = port.port.to_string();
        if let Some(name) = &port.name {
            let name = format!("{prefix}_SERVICE_PORT_{}", variable_part(name));
            variables.push((name, number.clone()));
        }
        let name = format!("{prefix}_PORT_{number}_{}", protocol(port));
        variables.extend([
            (name.clone(), link(address, port)),
            (format!("{name}_PROTO"), protocol(port).to_lowercase()),
            (format!("{name}_PORT"), number),
            (format!("{name}_ADDR"), address.to_owned()),
        ]);
    }
    variables
}

/// A name of Kubernetes as a part of a variable's name.
fn variable_part(name: &str) -> String {
    name.replace('-', "_").to_uppercase()
}

/// The protocol of a port, as the API has it: in capitals, TCP by default.
fn protocol(port: &ServicePort) -> &str {
    port.protocol.as_deref().unwrap_or("TCP")
}

/// The address of a port as Docker wrote links: `tcp://10.0.0.7:443`.
fn link(address: &str, port: &ServicePort) -> String {
    let protocol = protocol(port).to_lowercase();
    if address.parse::<Ipv6Addr>().is_ok() {
        format!("{protocol}://[{address}]:{}", port.port)
    } else {
        format!("{protocol}://{address}:{}", port.port)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;
    use crate::scratch::Scratch;

    /// As in Kubernetes' own tests of its kubelet (`pkg/kubelet/envvars/envvars_test.go`).
    #[test]
    fn variables_describe_a_service_as_a_kubelet_does() {
        let service = serde_json::from_value(json!({
            "metadata": {"name": "abc-123"},
            "spec": {
                "clusterIP": "5.6.7.8",
                "ports": [
                    {"name": "u-d-p", "port": 8081, "protocol": "UDP"},
                    {"name": "t-c-p", "port": 8081, "protocol": "TCP"},
                ],
            },
        }));
        let mut variables = service_variables(&service.unwrap());
        variables.sort();
        let mut expected = [
            ("ABC_123_SERVICE_HOST", "5.6.7.8"),
            ("ABC_123_SERVICE_PORT", "8081"),
            ("ABC_123_SERVICE_PORT_U_D_P", "8081"),
            ("ABC_123_SERVICE_PORT_T_C_P", "8081"),
            ("ABC_123_PORT", "udp://5.6.7.8:8081"),
            ("ABC_123_PORT_8081_UDP", "udp://5.6.7.8:8081"),
            ("ABC_123_PORT_8081_UDP_PROTO", "udp"),
            ("ABC_123_PORT_8081_UDP_PORT", "8081"),
            ("ABC_123_PORT_8081_UDP_ADDR", "5.6.7.8"),
            ("ABC_123_PORT_8081_TCP", "tcp://5.6.7.8:8081"),
            ("ABC_123_PORT_8081_TCP_PROTO", "tcp"),
            ("ABC_123_PORT_8081_TCP_PORT", "8081"),
            ("ABC_123_PORT_8081_TCP_ADDR", "5.6.7.8"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
        expected.sort();
        assert_eq!(variables, expected);

        let headless = json!({
            "metadata": {"name": "x"}, "spec": {"clusterIP": "None", "ports": [{"port": 1}]},
        });
        assert!(service_variables(&serde_json::from_value(headless).unwrap()).is_empty());
        let six = json!({
            "metadata": {"name": "x"}, "spec": {"clusterIP": "fd00::7", "ports": [{"port": 1}]},
        });
        let six = service_variables(&serde_json::from_value(six).unwrap());
        assert!(six.contains(&("X_PORT".to_owned(), "tcp://[fd00::7]:1".to_owned())), "{six:?}");
    }

    #[test]
    fn a_rotation_replaces_all_files_and_leaves_no_old_token() {
        let scratch = Scratch::new("pod").unwrap();
        let volume = scratch.folder("volume").unwrap();
        let first = SecretString::from("first");
        let pod = Pod {
            volume: MountedSecret::new(&volume, &files(&first, "CA", "brokers")).unwrap(),
            namespace: "brokers".to_owned(),
            authority: "CA".to_owned(),
            environment: Vec::new(),
        };
        pod.write_token(&SecretString::from("second")).unwrap();
        let read = |name| fs::read_to_string(volume.join(name)).unwrap();
        let contents = [read("token"), read("ca.crt"), read("namespace")];
        assert_eq!(contents, ["second", "CA", "brokers"]);
        let mut names: Vec<String> = fs::read_dir(&volume)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names.len(), 5, "{names:?}");
        assert!(names[0].starts_with("..") && names[0..2].contains(&"..data".to_owned()));
        assert_eq!(names[2..], ["ca.crt", "namespace", "token"]);
    }
}
