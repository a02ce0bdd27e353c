//! A rolling upgrade of two replicas from another version of the broker to this one, while people
//! work.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::step;
use crate::binaries::{Binaries, Profile, run_cargo};
use crate::broker;
use crate::control_plane::BROKER_USER;
use crate::load_balancer::LoadBalancer;
use crate::machine;
use crate::process::Program;
use crate::progress::print_message;
use crate::scratch::Scratch;
use crate::traffic::Traffic;
use crate::world::World;

/// Time limit of git and tar.
const COMMAND_TIMEOUT: Duration = Duration::from_mins(5);

/// Builds the broker of this commit, starts two replicas of it, and replaces one after the other
/// with this version. No request may fail meanwhile.
///
/// # Errors
/// The commit cannot be built, a replica does not start, or a request failed.
pub async fn run(from: &str) -> Result<()> {
    print_message("upgrade");
    let old = step(&format!("build the broker of {from}"), Box::pin(build(from))).await?;
    let new = step("build this version", Binaries::build(Profile::own(), None, None)).await?;
    let balancer = LoadBalancer::start().await?;
    let start = World::builder()
        .broker_program(Some(old.clone()))
        .replica_programs(&[old])
        .tls()
        .setting("public_url", format!("https://127.0.0.1:{}", balancer.port()))
        .setting("log.level", "info")
        .start();
    let what = format!("start the control plane and two replicas of {from}");
    let world = step(&what, Box::pin(start)).await?;
    balancer.forward_to(world.brokers())?;
    let person = world.person("alice").await?;
    let traffic = step("sign a person in", Traffic::prepare(&world, &person)).await?;
    let upgrade = async {
        traffic.continues().await?;
        let (admin, identity) = (world.admin_kubectl()?, world.broker_kubectl()?);
        let program = new.tenant_broker();
        let install = broker::install(&program, BROKER_USER, &[], &admin, &identity);
        step("tenant-broker install --apply of this version", install).await?;
        traffic.continues().await?;
        let replace = async {
            for broker in world.brokers() {
                ensure!(broker.stop().await?.success(), "the replica did not stop by itself");
                traffic.continues().await?;
                broker.use_program(new.tenant_broker());
                broker.start().await?;
                traffic.continues().await?;
            }
            anyhow::Ok(())
        };
        step("replace both replicas; requests go on between the steps", replace).await?;
        traffic.end();
        anyhow::Ok(())
    };
    tokio::try_join!(Box::pin(upgrade), Box::pin(traffic.call()), Box::pin(traffic.kubectl()))?;
    let (succeeded, redirected) = (traffic.succeeded(), balancer.redirected());
    ensure!(redirected > 0, "no connection was refused, so nothing was tried");
    print_message(&format!(
        "upgrade: passed; {succeeded} requests succeeded and none failed, {redirected} connections \
         went to the other replica"
    ));
    Ok(())
}

/// Builds the broker of a commit once and keeps it in our cache, in the profile of this harness.
async fn build(commit: &str) -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("find the workspace")?;
    let git = |args: &[&str]| Program::new("git").args(args).in_folder(root).run(COMMAND_TIMEOUT);
    let name = format!("{commit}^{{commit}}");
    let commit = git(&["rev-parse", "--verify", &name]).await?.success()?.stdout;
    let commit = commit.trim();
    let cache = machine::cache_folder().context("set HOME or XDG_CACHE_HOME")?.join("upgrade");
    let profile = match Profile::own() {
        Profile::Dev => "debug",
        Profile::Release => "release",
    };
    let program = cache.join(commit).join(profile).join("tenant-broker");
    if program.exists() {
        return Ok(program);
    }
    // An export, because a worktree would be registered in the repository.
    let work = Scratch::new("upgrade")?;
    let (archive, source) = (work.path().join("source.tar"), work.folder("source")?);
    let output = format!("--output={}", archive.display());
    git(&["archive", "--format=tar", &output, commit]).await?.success()?;
    let unpack = Program::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&source);
    unpack.run(COMMAND_TIMEOUT).await?.success()?;
    let target = cache.join("target");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Program::new(cargo)
        .args(["build", "--locked", "--package", "tenant-broker", "--bin", "tenant-broker"])
        .env("CARGO_TARGET_DIR", &target)
        .in_folder(&source);
    if Profile::own() == Profile::Release {
        build = build.arg("--release");
    }
    run_cargo(build).await?;
    let folder = program.parent().context("the cache has no folder")?;
    std::fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    // The program is complete or absent.
    let copy = tempfile::NamedTempFile::new_in(folder).context("make a file in the cache")?;
    let output = target.join(profile).join("tenant-broker");
    std::fs::copy(&output, copy.path()).with_context(|| format!("copy {}", output.display()))?;
    copy.persist(&program).with_context(|| format!("write {}", program.display()))?;
    Ok(program)
}
