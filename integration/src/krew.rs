//! krew, the manager of kubectl plugins: it checks the manifest of our plugin and installs it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;

use crate::go_build::GoProgram;
use crate::go_tool::GoTool;
use crate::process::{Finished, Program};

const KREW: &str = "krew";
/// The program that krew's index checks submitted manifests with.
const VALIDATE: &str = "validate-krew-manifest";
const TOOL: GoTool = GoTool {
    name: "krew",
    cache: "krew",
    takes: "a minute",
    module: "sigs.k8s.io/krew",
    go_mod: include_str!("../krew/go.mod"),
    go_sum: include_str!("../krew/go.sum"),
    programs: &[
        GoProgram { name: KREW, package: "sigs.k8s.io/krew/cmd/krew", output: KREW },
        GoProgram {
            name: VALIDATE,
            package: "sigs.k8s.io/krew/cmd/validate-krew-manifest",
            output: VALIDATE,
        },
    ],
    tags: "",
};
/// Time limit of one command.
const COMMAND_TIMEOUT: Duration = Duration::from_mins(2);

/// The programs of krew.
#[derive(Clone, Debug)]
pub struct Krew {
    folder: PathBuf,
}

impl Krew {
    /// Returns the pinned krew, and builds it if it is missing, which takes a minute.
    ///
    /// # Errors
    /// There is no Go to build it with, or the build fails.
    pub async fn find() -> Result<Self> {
        Ok(Self { folder: TOOL.find().await? })
    }

    /// Checks a manifest by the rules of krew's index. Its file has to have the plugin's name.
    /// Nothing is downloaded. A failure exit status is no error here.
    ///
    /// # Errors
    /// The program cannot be started or does not end.
    pub async fn validate(&self, manifest: &Path) -> Result<Finished> {
        Program::new(self.folder.join(VALIDATE))
            .arg("-manifest")
            .arg(manifest)
            .arg("-skip-install")
            .run(COMMAND_TIMEOUT)
            .await
    }

    /// Installs a plugin from its manifest and an archive of this machine into `root`, as for this
    /// system and architecture (names of Go, such as `linux` and `amd64`). A failure exit status is
    /// no error here.
    ///
    /// # Errors
    /// The program cannot be started or does not end.
    pub async fn install(
        &self,
        root: &Path,
        manifest: &Path,
        archive: &Path,
        (os, arch): (&str, &str),
    ) -> Result<Finished> {
        Program::new(self.folder.join(KREW))
            .args(["install", "--manifest"])
            .arg(manifest)
            .arg("--archive")
            .arg(archive)
            .clear_env()
            .env("HOME", root)
            .env("PATH", root.join("bin"))
            .env("KREW_ROOT", root)
            .env("KREW_OS", os)
            .env("KREW_ARCH", arch)
            .env("KREW_NO_UPGRADE_CHECK", "1")
            .run(COMMAND_TIMEOUT)
            .await
    }
}
