//! `cargo make-release`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use cargo_metadata::semver::Version;
use clap::Parser;
use integration::krew::Krew;
use integration::progress::print_message;
use release::compile::Programs;
use release::plugin_files::PluginFiles;
use release::source::Source;
use release::summary::{SUMMARY, summary};
use release::target;
use release::{artifacts, krew};

/// Builds all artifacts of a release from the tag of its version: image, archives, packages, chart,
/// krew's manifest, installer script, bills of materials, license lists and checksums. They are in
/// target/release-artifacts/VERSION; nothing is published.
#[derive(Debug, Parser)]
#[command(name = "cargo make-release")]
struct Args {
    /// Version to release [default: that of Cargo.toml]
    #[arg(long)]
    version: Option<Version>,
    /// Accept a checkout without the tag or with changes, and any --version: a trial
    #[arg(long)]
    allow_dirty: bool,
    /// Build for this Rust target only; repeat the flag for more [default: one for each platform
    /// that this machine can build for, static ones first]
    #[arg(long, value_name = "TRIPLE")]
    target: Vec<String>,
    /// Build the broker without profile-guided optimization, which takes half an hour
    #[arg(long)]
    no_pgo: bool,
    /// Package the programs tenant-broker and kubectl-tenant of this folder, built for the one
    /// --target, instead of building them
    #[arg(long, value_name = "FOLDER", requires_all = ["allow_dirty", "target"])]
    programs: Option<PathBuf>,
    /// Folder for the artifacts; it must not exist [default: target/release-artifacts/VERSION]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let result = tokio::runtime::Runtime::new()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(make_release(args)));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_message(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

async fn make_release(args: Args) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("find the workspace")?;
    let source = Source::read(root, args.version, args.allow_dirty).await?;
    let out = args.out.unwrap_or_else(|| {
        source.target_folder.join("release-artifacts").join(source.version.to_string())
    });
    ensure!(!out.exists(), "{} exists; move it away", out.display());
    let host = target::host().await?;
    let selection = target::select(&args.target, &host).await?;
    for reason in &selection.skipped {
        print_message(&format!("left out: {reason}"));
    }
    let mut programs = Vec::new();
    let mut builds = Vec::new();
    for target in selection.targets {
        let start = Instant::now();
        programs.push(match &args.programs {
            Some(folder) => Programs::read(folder, target)?,
            None => Programs::build(&source, target, &host, !args.no_pgo).await?,
        });
        builds.push((target.triple.to_owned(), start.elapsed()));
    }
    write(&source, &host, &programs, &selection.skipped, &builds, &out).await?;
    print_message(&format!("the artifacts of {} are in {}", source.version, out.display()));
    Ok(())
}

/// Writes the artifacts into a folder beside `out`, which gets its name when all is done and checked.
async fn write(
    source: &Source,
    host: &str,
    programs: &[Programs],
    skipped: &[String],
    builds: &[(String, Duration)],
    out: &Path,
) -> Result<()> {
    let native = programs.iter().find(|programs| programs.target.runs_on(host));
    let native = native.context("no program for this machine was built; add its --target")?;
    let shared = PluginFiles::print(&native.plugin_file).await?;
    let parent = out.parent().context("--out has no parent folder")?;
    std::fs::create_dir_all(parent).with_context(|| format!("make {}", parent.display()))?;
    let work = tempfile::Builder::new()
        .prefix(".making-")
        .tempdir_in(parent)
        .context("make a folder for the artifacts")?;
    let report = artifacts::write(source, programs, &shared, work.path()).await?;
    let manifest = work.path().join(format!("{}.yaml", krew::PLUGIN_NAME));
    let validated = Krew::find().await?.validate(&manifest).await?;
    validated.success().context("krew refuses the manifest")?;
    let text = summary(source, &report, skipped, builds)?;
    std::fs::write(work.path().join(SUMMARY), &text).context("write the summary")?;
    make_readable(work.path())?;
    std::fs::rename(work.path(), out).with_context(|| format!("make {}", out.display()))?;
    print_message(&text);
    Ok(())
}

/// Temporary folders are for their owner only.
fn make_readable(folder: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755))
        .context("make the folder of the artifacts readable")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn programs_of_a_folder_are_for_trials_of_one_target() {
        Args::command().debug_assert();
        let parse = |args: &[&str]| Args::try_parse_from([&["make-release"][..], args].concat());
        assert!(parse(&["--programs", "x"]).is_err());
        assert!(parse(&["--programs", "x", "--allow-dirty"]).is_err());
        let target = "x86_64-unknown-linux-gnu";
        assert!(parse(&["--programs", "x", "--allow-dirty", "--target", target]).is_ok());
        assert!(parse(&["--version", "1.2"]).is_err(), "a version has three numbers");
    }
}
