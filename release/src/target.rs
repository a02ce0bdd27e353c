//! Platforms, and the Rust targets that programs for them are built with.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use integration::machine;
use integration::process::Program;
use oci_spec::image;

/// Time limit of a question to the compiler.
const COMPILER_TIMEOUT: Duration = Duration::from_mins(1);

/// An operating system that programs are built for. Windows is none of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Os {
    /// Linux: broker and plugin.
    Linux,
    /// macOS: the plugin.
    MacOs,
}

/// A processor architecture that programs are built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arch {
    /// `x86_64`.
    Amd64,
    /// `aarch64`.
    Arm64,
}

impl Arch {
    /// The name that Debian, Go and OCI images use: `amd64` or `arm64`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// The name that RPM and `uname -m` on Linux use: `x86_64` or `aarch64`.
    pub fn machine(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64",
            Self::Arm64 => "aarch64",
        }
    }

    /// The value in an image configuration.
    pub fn oci(self) -> image::Arch {
        match self {
            Self::Amd64 => image::Arch::Amd64,
            Self::Arm64 => image::Arch::ARM64,
        }
    }
}

/// A Rust target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its name, for example `x86_64-unknown-linux-gnu`.
    pub triple: &'static str,
    /// The operating system.
    pub os: Os,
    /// The architecture.
    pub arch: Arch,
    /// C compiler that builds for it from another platform, as Debian's packages name it. *ring*
    /// and SQLite contain C code.
    cross_compiler: Option<&'static str>,
}

/// All targets. The first available one of a platform is used, so static programs come before
/// dynamic ones.
pub const TARGETS: [Target; 6] = [
    Target {
        triple: "x86_64-unknown-linux-musl",
        os: Os::Linux,
        arch: Arch::Amd64,
        cross_compiler: Some("musl-gcc"),
    },
    Target {
        triple: "x86_64-unknown-linux-gnu",
        os: Os::Linux,
        arch: Arch::Amd64,
        cross_compiler: Some("x86_64-linux-gnu-gcc"),
    },
    Target {
        triple: "aarch64-unknown-linux-musl",
        os: Os::Linux,
        arch: Arch::Arm64,
        cross_compiler: Some("aarch64-linux-musl-gcc"),
    },
    Target {
        triple: "aarch64-unknown-linux-gnu",
        os: Os::Linux,
        arch: Arch::Arm64,
        cross_compiler: Some("aarch64-linux-gnu-gcc"),
    },
    Target {
        triple: "x86_64-apple-darwin",
        os: Os::MacOs,
        arch: Arch::Amd64,
        cross_compiler: None,
    },
    Target {
        triple: "aarch64-apple-darwin",
        os: Os::MacOs,
        arch: Arch::Arm64,
        cross_compiler: None,
    },
];

impl Target {
    /// Finds a target by its name.
    ///
    /// # Errors
    /// Nothing is released for it; the message lists the targets.
    pub fn by_triple(triple: &str) -> Result<Self> {
        let found = TARGETS.into_iter().find(|target| target.triple == triple);
        found.with_context(|| {
            let known: Vec<&str> = TARGETS.iter().map(|target| target.triple).collect();
            format!("{triple} is no target of a release; choose from {}", known.join(", "))
        })
    }

    /// The platform in names of files: `linux_amd64`, `darwin_arm64`.
    pub fn platform(&self) -> String {
        format!("{}_{}", self.os_name(), self.arch.name())
    }

    /// The operating system as krew and `uname -s`, in lower case, name it.
    pub fn os_name(&self) -> &'static str {
        match self.os {
            Os::Linux => "linux",
            Os::MacOs => "darwin",
        }
    }

    /// Whether programs for it contain their C library.
    pub fn is_static(&self) -> bool {
        self.triple.ends_with("-musl")
    }

    /// Whether its programs run on a machine with this target.
    pub fn runs_on(&self, host: &str) -> bool {
        let same_arch = host.starts_with(self.arch.machine());
        same_arch
            && match self.os {
                Os::Linux => host.contains("-linux-"),
                Os::MacOs => host.ends_with("-apple-darwin"),
            }
    }

    /// Returns what is missing to build for it on this machine, or nothing.
    ///
    /// # Errors
    /// The compiler cannot be run.
    pub async fn missing(&self, host: &str) -> Result<Option<String>> {
        let libraries = rustc(&["--print", "target-libdir", "--target", self.triple]).await?;
        if !Path::new(libraries.trim()).is_dir() {
            let triple = self.triple;
            return Ok(Some(format!(
                "the Rust standard library of {triple} is not installed \
                 (rustup target add {triple})"
            )));
        }
        let both_on_macos = self.os == Os::MacOs && host.ends_with("-apple-darwin");
        let variable = self.linker_variable();
        if self.triple == host
            || both_on_macos
            || std::env::var_os(&variable).is_some()
            || self.found_cross_compiler().is_some()
        {
            return Ok(None);
        }
        let install = self.cross_compiler.map_or_else(String::new, |name| format!(", or {name}"));
        Ok(Some(format!(
            "there is no linker and C compiler for {}: set {variable} and CC_{}{install}",
            self.triple,
            self.triple.replace('-', "_")
        )))
    }

    /// Returns the environment variables that cargo needs to build for it on this machine.
    pub fn build_environment(&self, host: &str) -> Vec<(String, OsString)> {
        let variable = self.linker_variable();
        // rustc links static programs with its own C library, by any linker of the machine's
        // architecture.
        let links_itself = self.triple == host || self.is_static() && self.runs_on(host);
        if links_itself || std::env::var_os(&variable).is_some() {
            return Vec::new();
        }
        let compiler = self.found_cross_compiler();
        compiler.map(|compiler| (variable, compiler.into_os_string())).into_iter().collect()
    }

    fn found_cross_compiler(&self) -> Option<PathBuf> {
        machine::find(self.cross_compiler?)
    }

    fn linker_variable(&self) -> String {
        format!("CARGO_TARGET_{}_LINKER", self.triple.to_uppercase().replace('-', "_"))
    }
}

/// The targets of a release, one for each platform that this machine can build for.
#[derive(Clone, Debug)]
pub struct Selection {
    /// The targets, in the order of [`TARGETS`].
    pub targets: Vec<Target>,
    /// Lines for the summary: the platforms that are left out, with the reason.
    pub skipped: Vec<String>,
}

/// Selects the targets: the requested ones, else the first available one of each platform.
///
/// # Errors
/// A requested target is unknown or cannot be built, two are for the same platform, or nothing can
/// be built.
pub async fn select(requested: &[String], host: &str) -> Result<Selection> {
    let candidates = match requested {
        [] => TARGETS.to_vec(),
        requested => {
            requested.iter().map(|triple| Target::by_triple(triple)).collect::<Result<_>>()?
        }
    };
    let mut selection = Selection { targets: Vec::new(), skipped: Vec::new() };
    let mut reasons: Vec<(String, String)> = Vec::new();
    for target in candidates {
        let platform = target.platform();
        let taken = selection.targets.iter().any(|other| other.platform() == platform);
        match target.missing(host).await? {
            Some(reason) if !requested.is_empty() => bail!("{}: {reason}", target.triple),
            Some(reason) => reasons.push((platform, reason)),
            None if taken && !requested.is_empty() => {
                bail!("two targets were requested for {platform}; choose one of them")
            }
            None if taken => {}
            None => selection.targets.push(target),
        }
    }
    ensure!(
        !selection.targets.is_empty(),
        "this machine can build for no platform: {}",
        reasons.iter().map(|(_, reason)| reason.as_str()).collect::<Vec<_>>().join("; ")
    );
    for platform in ["linux_amd64", "linux_arm64", "darwin_amd64", "darwin_arm64"] {
        if selection.targets.iter().any(|target| target.platform() == platform) {
            continue;
        }
        let mut of_platform =
            reasons.iter().filter(|(other, _)| other == platform).map(|(_, reason)| reason.clone());
        // The last target of a platform is the one that is easiest to install.
        let reason = of_platform.next_back().unwrap_or_else(|| "not requested".to_owned());
        selection.skipped.push(format!("{platform}: {reason}"));
    }
    Ok(selection)
}

/// Returns the target of this machine.
///
/// # Errors
/// The compiler cannot be run.
pub async fn host() -> Result<String> {
    let version = rustc(&["--version", "--verbose"]).await?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc --version --verbose has no line `host`")?.to_owned())
}

/// Returns the version of the compiler, for example `1.95.0`.
///
/// # Errors
/// The compiler cannot be run.
pub async fn rust_version() -> Result<String> {
    let version = rustc(&["--version", "--verbose"]).await?;
    let release = version.lines().find_map(|line| line.strip_prefix("release: "));
    Ok(release.context("rustc --version --verbose has no line `release`")?.to_owned())
}

/// Returns the folder of the standard library of this machine's target.
///
/// # Errors
/// The compiler cannot be run.
pub async fn libraries_of_host() -> Result<PathBuf> {
    Ok(PathBuf::from(rustc(&["--print", "target-libdir"]).await?.trim()))
}

async fn rustc(args: &[&str]) -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let run = Program::new(rustc).args(args).run(COMPILER_TIMEOUT).await?;
    Ok(run.success().context("ask the Rust compiler")?.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_has_a_platform_and_static_ones_come_first() {
        let platforms: Vec<String> = TARGETS.iter().map(Target::platform).collect();
        assert_eq!(
            platforms,
            [
                "linux_amd64",
                "linux_amd64",
                "linux_arm64",
                "linux_arm64",
                "darwin_amd64",
                "darwin_arm64"
            ]
        );
        assert!(TARGETS[0].is_static() && !TARGETS[1].is_static());
    }

    #[test]
    fn programs_run_on_the_same_system_and_architecture() {
        let musl = Target::by_triple("x86_64-unknown-linux-musl").unwrap();
        assert!(musl.runs_on("x86_64-unknown-linux-gnu"));
        assert!(!musl.runs_on("aarch64-unknown-linux-gnu"));
        assert!(!musl.runs_on("x86_64-apple-darwin"));
    }

    #[test]
    fn the_variable_of_the_linker_is_the_one_that_cargo_reads() {
        let target = Target::by_triple("aarch64-unknown-linux-gnu").unwrap();
        assert_eq!(target.linker_variable(), "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER");
    }

    #[test]
    fn windows_is_no_target() {
        let error = Target::by_triple("x86_64-pc-windows-msvc").unwrap_err();
        assert!(error.to_string().contains("no target of a release"), "{error}");
    }

    #[tokio::test]
    async fn a_release_builds_for_this_machine_and_names_what_it_skips() {
        let host = host().await.unwrap();
        let selection = select(&[], &host).await.unwrap();
        assert!(selection.targets.iter().any(|target| target.runs_on(&host)), "{selection:?}");
        assert_eq!(selection.targets.len() + selection.skipped.len(), 4, "{selection:?}");
    }
}
