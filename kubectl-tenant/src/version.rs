//! The command `version`.

use serde::Serialize;

use crate::{cli::Shown, error::Error, output, world::World};

/// Output of `version`.
#[derive(Serialize)]
struct Version {
    #[serde(rename = "version")]
    number: &'static str,
    /// Commit that the program was built from, if the build knew it.
    commit: Option<&'static str>,
    os: &'static str,
    arch: &'static str,
}

/// Runs `version`. The commit comes from `TENANT_COMMIT` at build time.
pub(crate) fn version(options: Shown, world: &mut World) -> Result<(), Error> {
    let version = Version {
        number: env!("CARGO_PKG_VERSION"),
        commit: option_env!("TENANT_COMMIT"),
        os: std::env::consts::OS,
        arch: std::env::consts::ARCH,
    };
    output::show(world, options.output, &version, |it| {
        format!(
            "kubectl-tenant {}{} {}/{}\n",
            it.number,
            it.commit.map(|commit| format!(" ({commit})")).unwrap_or_default(),
            it.os,
            it.arch
        )
    })
}
