//! The programs of the control plane: where kube-apiserver, kube-controller-manager and etcd are
//! found or built.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::{prerequisites, release};
use crate::go_build::GoBuild;
use crate::machine;
use crate::process::Program;
use crate::progress::print_message;
use crate::search_path::find_in;

/// Time limit of `go env`. Go may download another version of itself first.
const GO_VERSION_TIMEOUT: Duration = Duration::from_mins(10);

/// The three programs of a control plane.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The Kubernetes API server.
    pub kube_apiserver: FoundProgram,
    /// The controller manager, which fills roles, counts quotas and ends namespaces.
    pub kube_controller_manager: FoundProgram,
    /// The API server's storage.
    pub etcd: FoundProgram,
}

/// One program that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundProgram {
    /// Path of the file.
    pub path: PathBuf,
    /// The first line that `--version` prints.
    pub version: String,
    /// The origin, for a person: `KUBEBUILDER_ASSETS`, `PATH` or `cache`.
    pub origin: &'static str,
}

/// The places that are searched, in this order; each program is taken from the first that has it.
#[derive(Clone, Debug, Default)]
pub struct SearchPlaces {
    /// The folder in `KUBEBUILDER_ASSETS`, which has to have all programs.
    pub assets: Option<PathBuf>,
    /// The value of `PATH`.
    pub search_path: OsString,
    /// Our cache: `$XDG_CACHE_HOME/kubectl-tenant/controlplane/<version>`, or below `~/.cache`.
    pub cache: Option<PathBuf>,
}

impl SearchPlaces {
    /// Reads the search places from the environment.
    ///
    /// # Errors
    /// `controlplane/go.mod` names no version.
    pub fn from_env() -> Result<Self> {
        let version = release::kubernetes_version()?;
        Ok(Self {
            assets: std::env::var_os("KUBEBUILDER_ASSETS")
                .filter(|value| !value.is_empty())
                .map(PathBuf::from),
            search_path: std::env::var_os("PATH").unwrap_or_default(),
            cache: machine::cache_folder().map(|cache| cache.join("controlplane").join(version)),
        })
    }

    fn candidate(&self, name: &str) -> Option<(PathBuf, &'static str)> {
        let assets = self.assets.as_ref().map(|folder| folder.join(name));
        let cached = self.cache.as_ref().map(|folder| folder.join(name));
        assets
            .filter(|file| file.is_file())
            .map(|file| (file, "KUBEBUILDER_ASSETS"))
            .or_else(|| find_in(&self.search_path, name).map(|file| (file, "PATH")))
            .or_else(|| cached.filter(|file| file.is_file()).map(|file| (file, "cache")))
    }
}

impl Programs {
    /// Finds the programs, builds the missing ones, and prints where each came from.
    ///
    /// # Errors
    /// `KUBEBUILDER_ASSETS` lacks a program, or one is missing and cannot be built; the message
    /// names every way to get it.
    pub async fn find(places: &SearchPlaces) -> Result<Self> {
        if let Some(fault) = places.assets.as_deref().and_then(prerequisites::assets_fault) {
            bail!("{fault}");
        }
        let names = prerequisites::PROGRAM_NAMES;
        let missing: Vec<_> =
            names.into_iter().filter(|name| places.candidate(name).is_none()).collect();
        if !missing.is_empty() {
            let go = find_in(&places.search_path, "go");
            let (Some(go), Some(cache)) = (go, places.cache.as_ref()) else {
                bail!("{}", prerequisites::install_hint(&missing, places.cache.as_deref()));
            };
            check_version(&go).await?;
            let version = release::kubernetes_version()?;
            let build = GoBuild {
                what: &format!("kube-apiserver, kube-controller-manager and etcd {version}"),
                takes: prerequisites::BUILD_TAKES,
                go_mod: prerequisites::GO_MOD,
                go_sum: release::GO_SUM,
                programs: &release::PROGRAMS,
                tests: &[],
                linker_flags: &release::linker_flags(&version)?,
                tags: "",
            };
            build.build(&go, cache).await?;
        }
        let found = Self {
            kube_apiserver: find_program(places, "kube-apiserver").await?,
            kube_controller_manager: find_program(places, "kube-controller-manager").await?,
            etcd: find_program(places, "etcd").await?,
        };
        found.report();
        Ok(found)
    }

    /// Prints one line if all versions are as pinned, else one for each program.
    fn report(&self) {
        let all = [&self.kube_apiserver, &self.kube_controller_manager, &self.etcd];
        if all.iter().all(|found| found.origin == "cache") {
            let folder = self.etcd.path.parent().unwrap_or(Path::new(""));
            print_message(&format!(
                "control plane: {} (cache, {})",
                self.kube_apiserver.version,
                folder.display()
            ));
            return;
        }
        for found in all {
            print_message(&format!(
                "control plane: {} ({}, {})",
                found.version,
                found.origin,
                found.path.display()
            ));
        }
        if self.kube_apiserver.version != self.kube_controller_manager.version {
            print_message("warning: kube-apiserver and kube-controller-manager differ in version");
        }
    }
}

/// Returns the program in the first place that has it, with its version.
async fn find_program(places: &SearchPlaces, name: &str) -> Result<FoundProgram> {
    let (path, origin) =
        places.candidate(name).with_context(|| format!("{name} is not where it was built"))?;
    let version = if origin == "cache" {
        // The folder's name tells the version; running the program takes a tenth of a second each.
        match name {
            "etcd" => format!("etcd {}", release::etcd_version()?),
            _ => format!("Kubernetes {}", release::kubernetes_version()?),
        }
    } else {
        let output = Program::new(&path)
            .arg("--version")
            .run(Duration::from_secs(20))
            .await?
            .success()
            .with_context(|| format!("ask {} for its version", path.display()))?;
        output.stdout.lines().next().unwrap_or_default().to_owned()
    };
    Ok(FoundProgram { path, version, origin })
}

/// Checks the version of Go in the folder of the module, where Go replaces itself by the version
/// that the module needs, if it may (`GOTOOLCHAIN`).
async fn check_version(go: &Path) -> Result<()> {
    let answer = Program::new(go)
        .args(["env", "GOVERSION"])
        .without_env("GOFLAGS")
        .env("GOWORK", "off")
        .in_folder(Path::new(env!("CARGO_MANIFEST_DIR")).join("controlplane"))
        .run(GO_VERSION_TIMEOUT)
        .await?
        .success()
        .with_context(|| format!("ask {} for its version", go.display()))?;
    if let Some(fault) = prerequisites::go_version_fault(go, &answer.stdout) {
        bail!("{fault}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn write_program(file: &Path, script: &str) {
        std::fs::write(file, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(file, PermissionsExt::from_mode(0o755)).unwrap();
    }

    fn script(folder: &Path, name: &str) {
        write_program(&folder.join(name), &format!("echo {name} of {}", folder.display()));
    }

    #[tokio::test]
    async fn each_program_comes_from_the_first_place_that_has_it() {
        let [path, cache] = std::array::from_fn(|_| tempfile::tempdir().unwrap());
        script(path.path(), "etcd");
        script(cache.path(), "etcd");
        script(cache.path(), "kube-apiserver");
        script(cache.path(), "kube-controller-manager");
        let places = SearchPlaces {
            assets: None,
            search_path: path.path().into(),
            cache: Some(cache.path().to_owned()),
        };
        let found = Programs::find(&places).await.unwrap();
        assert_eq!(found.etcd.origin, "PATH");
        assert_eq!(found.etcd.version, format!("etcd of {}", path.path().display()));
        assert_eq!(found.kube_apiserver.origin, "cache");
        assert_eq!(found.kube_controller_manager.origin, "cache");
    }

    #[tokio::test]
    async fn a_folder_of_assets_needs_every_program() {
        let [assets, path] = std::array::from_fn(|_| tempfile::tempdir().unwrap());
        script(assets.path(), "etcd");
        script(assets.path(), "kube-apiserver");
        for name in prerequisites::PROGRAM_NAMES {
            script(path.path(), name);
        }
        let places = SearchPlaces {
            assets: Some(assets.path().to_owned()),
            search_path: path.path().into(),
            cache: None,
        };
        let text = Programs::find(&places).await.unwrap_err().to_string();
        assert!(text.contains("are missing: kube-controller-manager. "), "{text}");
        script(assets.path(), "kube-controller-manager");
        let found = Programs::find(&places).await.unwrap();
        for program in [found.kube_apiserver, found.kube_controller_manager, found.etcd] {
            assert_eq!(program.origin, "KUBEBUILDER_ASSETS");
        }
    }

    #[tokio::test]
    async fn a_missing_program_is_named_with_every_way_to_install_it() {
        let cache = tempfile::tempdir().unwrap();
        script(cache.path(), "etcd");
        let places =
            SearchPlaces { cache: Some(cache.path().to_owned()), ..SearchPlaces::default() };
        let text = Programs::find(&places).await.unwrap_err().to_string();
        assert!(text.starts_with("not found: kube-apiserver, kube-controller-manager. "), "{text}");
        for way in ["apt-get install golang-go", "brew install go", "KUBEBUILDER_ASSETS", "PATH"] {
            assert!(text.contains(way), "{way} is missing in {text}");
        }
    }

    /// Returns the error of a search that has to build, with this script as Go.
    async fn error_with_go(go: &str) -> String {
        let [path, cache] = std::array::from_fn(|_| tempfile::tempdir().unwrap());
        write_program(&path.path().join("go"), go);
        let places = SearchPlaces {
            assets: None,
            search_path: path.path().into(),
            cache: Some(cache.path().join("v0")),
        };
        format!("{:#}", Programs::find(&places).await.unwrap_err())
    }

    #[tokio::test]
    async fn a_failed_build_shows_the_output_of_go() {
        let go = "test $1 = env && echo go1.99 && exit\necho 'no such module proxy' >&2\nexit 1";
        let text = error_with_go(go).await;
        assert!(text.contains("no such module proxy"), "{text}");
    }

    #[tokio::test]
    async fn an_old_go_is_refused_before_it_builds() {
        let text = error_with_go("echo go1.19.8").await;
        assert!(text.contains("is go1.19.8, but the build of the control plane"), "{text}");
    }
}
