//! krew, the manager of kubectl plugins: it checks the manifest of our plugin and installs it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::go_build::{GoBuild, GoProgram, version_of};
use crate::process::{Finished, Program};

/// The Go module that names and pins krew.
const GO_MOD: &str = include_str!("../krew/go.mod");
/// The checksums of the module's dependencies.
const GO_SUM: &str = include_str!("../krew/go.sum");
/// Path of krew's module.
const MODULE: &str = "sigs.k8s.io/krew";
const KREW: &str = "krew";
/// The program that krew's index checks submitted manifests with.
const VALIDATE: &str = "validate-krew-manifest";
const PROGRAMS: [GoProgram; 2] = [
    GoProgram { name: KREW, package: "sigs.k8s.io/krew/cmd/krew", output: KREW },
    GoProgram {
        name: VALIDATE,
        package: "sigs.k8s.io/krew/cmd/validate-krew-manifest",
        output: VALIDATE,
    },
];
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
        let version = version_of(MODULE, GO_MOD)
            .with_context(|| format!("krew/go.mod names no version of {MODULE}"))?;
        let build = GoBuild {
            what: &format!("krew {version}"),
            takes: "a minute",
            go_mod: GO_MOD,
            go_sum: GO_SUM,
            programs: &PROGRAMS,
            tests: &[],
            linker_flags: "-s -w",
            tags: "",
        };
        Ok(Self { folder: build.in_cache("krew", &version).await? })
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
