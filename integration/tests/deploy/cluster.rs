//! The control plane that all these tests share, with one installation of the broker's permissions
//! at a time.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use integration::binaries::Binaries;
use integration::control_plane::{ControlPlane, ControlPlaneOptions};
use integration::helm::Helm;
use integration::kubeconfig;
use integration::kubectl::Kubectl;
use integration::scratch::Scratch;
use secrecy::SecretString;
use tokio::sync::{Mutex, MutexGuard};

/// A cluster has one ClusterRole and one set of admission policies, for one configuration.
static INSTALLATION: Mutex<()> = Mutex::const_new(());

/// The cluster, as its administrator uses it.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) control_plane: Arc<ControlPlane>,
    pub(crate) binaries: Arc<Binaries>,
    pub(crate) admin: Kubectl,
    pub(crate) helm: Helm,
    scratch: Scratch,
}

impl Cluster {
    pub(crate) async fn shared() -> Result<Self> {
        let options = ControlPlaneOptions::default();
        let (control_plane, binaries) =
            tokio::try_join!(ControlPlane::shared(&options), Binaries::shared())?;
        let scratch = Scratch::new("administrator")?;
        let admin = Kubectl::new(scratch.path(), control_plane.admin_kubeconfig(), None)?;
        let helm = Helm::for_kubectl(&admin).await?;
        Ok(Self { control_plane, binaries, admin, helm, scratch })
    }

    /// Writes a file into the administrator's home and returns its path.
    pub(crate) fn file(&self, name: &str, contents: &str) -> Result<PathBuf> {
        let file = self.scratch.path().join(name);
        std::fs::write(&file, contents).with_context(|| format!("write {name}"))?;
        Ok(file)
    }

    /// Creates a namespace in which the API server admits pods of the level `restricted` only.
    pub(crate) async fn restricted_namespace(&self, name: &str) -> Result<()> {
        self.admin.run(["create", "namespace", name]).await?.success()?;
        let label = "pod-security.kubernetes.io/enforce=restricted";
        self.admin.run(["label", "namespace", name, label]).await?.success()?;
        Ok(())
    }

    /// Waits until no other test needs its installation, and installs the permissions and policies
    /// for these settings, as an administrator does. They stay while the guard lives.
    pub(crate) async fn install(&self, settings: &Path) -> Result<MutexGuard<'static, ()>> {
        let guard = INSTALLATION.lock().await;
        let args = ["install", "--apply", "--config"];
        let install = self.admin.other(&self.binaries.tenant_broker()).args(args).arg(settings);
        install.run(std::time::Duration::from_mins(1)).await?.success()?;
        Ok(guard)
    }

    /// Waits until no other test needs its installation, for a test that installs otherwise.
    pub(crate) async fn exclusive(&self) -> MutexGuard<'static, ()> {
        INSTALLATION.lock().await
    }

    /// Returns a kubeconfig with a token of a ServiceAccount.
    pub(crate) async fn kubeconfig_of_service_account(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<String> {
        let token = ["create", "token", name, "-n", namespace, "--duration=1h"];
        let token = self.admin.run(token).await?.success()?.stdout;
        let file = self.scratch.path().join(format!("{namespace}.kubeconfig"));
        let authority = self.control_plane.authority().certificate();
        let token = SecretString::from(token.trim().to_owned());
        kubeconfig::write_for_bearer(&file, self.control_plane.url(), authority, &token)?;
        std::fs::read_to_string(&file).context("read a kubeconfig")
    }

    /// Returns the kubeconfig of the user `tenant-broker`.
    pub(crate) fn kubeconfig_of_broker(&self) -> Result<String> {
        std::fs::read_to_string(self.control_plane.broker_kubeconfig()).context("read a kubeconfig")
    }
}
