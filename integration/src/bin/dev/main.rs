//! `cargo dev`: the whole product on one machine.

mod command;
mod environment;
mod model;
mod people;
mod signals;
mod summary;
mod watch;

use std::cell::Cell;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Parser;
use integration::binaries::Profile;
use integration::port;
use integration::progress::print_message;
use integration::scratch::private_folder;
use integration::world::World;
use rustix::fs::{FlockOperation, flock};

use people::People;
use signals::Signals;

/// Default port of the broker, if it is free.
const PORT: u16 = 8080;

/// Starts a real control plane, the broker and demo accounts on this machine
///
/// Without --exec it prints what to type next, and runs until Ctrl-C; if a broker or a program of the
/// cluster ended meanwhile, it says so, and its exit code is 1. With --exec it runs a command
/// against the stack and exits with the command's status. It stops everything that it started.
#[derive(Debug, Parser)]
#[command(name = "cargo dev", override_usage = "cargo dev -- [OPTIONS]")]
struct Args {
    /// Store the broker's data in PostgreSQL instead of SQLite
    #[arg(long)]
    postgres: bool,
    /// Run N brokers on one database; needs --postgres
    #[arg(long, value_name = "N", default_value_t = 1)]
    replicas: usize,
    /// Serve the broker over TLS, which kubectl needs for the gateway
    #[arg(long)]
    tls: bool,
    #[command(flatten)]
    features: Features,
    /// Compile the programs in the release profile
    #[arg(long)]
    release: bool,
    /// Run this shell command with the programs on PATH, then stop everything
    #[arg(long, value_name = "CMD")]
    exec: Option<String>,
    /// Port of the broker [default: 8080 if it is free; with --exec any that is free]
    #[arg(long, value_name = "P")]
    port: Option<u16>,
    /// Keep all state in this folder, and continue from the state that it has
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

/// Features that are off by default.
#[derive(Debug, clap::Args)]
struct Features {
    /// Serve tenants of several people, which the account `operator` creates
    #[arg(long)]
    tenants: bool,
    /// Serve model services, with definitions of the kinds of KServe and Llama Stack but no operators,
    /// and a sample model in alice's workspace
    #[arg(long)]
    models: bool,
}

fn main() -> ExitCode {
    let args = Args::parse_from(arguments(std::env::args_os()));
    let result = tokio::runtime::Runtime::new()
        .context("start the async runtime")
        .and_then(|runtime| runtime.block_on(run(args)));
    result.unwrap_or_else(|error| {
        print_message(&format!("error: {error:#}"));
        ExitCode::FAILURE
    })
}

/// Returns our arguments. The alias `cargo dev` ends in `--`, so `cargo dev -- --exec CMD`, as
/// other cargo commands are called, contains a second one.
fn arguments(all: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut all: Vec<OsString> = all.collect();
    if all.get(1).is_some_and(|first| first == "--") {
        all.remove(1);
    }
    all
}

async fn run(args: Args) -> Result<ExitCode> {
    // First of all, so that no Ctrl-C is missed.
    let mut signals = Signals::listen()?;
    let _lock = args.state.as_deref().map(lock).transpose()?;
    let started = tokio::select! {
        started = start(&args) => started?,
        signal = signals.next() => {
            print_message("stopped before everything had started");
            return Ok(signals::exit_code(signal));
        }
    };
    let (world, people) = started;
    let ended = Cell::new(false);
    let code = tokio::select! {
        code = serve(&args, &world, &people, &mut signals, &ended) => code?,
        never = watch::report_ends(&world, &ended) => match never {},
    };
    print_message("stopping everything");
    drop(world);
    match &args.state {
        Some(folder) => print_message(&format!("stopped; the state is in {}", folder.display())),
        None => print_message("stopped; nothing is left behind"),
    }
    Ok(code)
}

/// Runs the command, or waits for a signal. Without a command the exit code says whether a program of
/// the stack has `ended` meanwhile.
async fn serve(
    args: &Args,
    world: &World,
    people: &People,
    signals: &mut Signals,
    ended: &Cell<bool>,
) -> Result<ExitCode> {
    let variables = environment::variables(world, people)?;
    if let Some(command) = &args.exec {
        return command::run(command, &variables, signals).await;
    }
    let script = environment::write_script(world, &variables)?;
    summary::print(world, people, &script, &args.features)?;
    signals.next().await;
    Ok(if ended.get() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn start(args: &Args) -> Result<(World, People)> {
    let begin = Instant::now();
    let mut builder = World::builder()
        .own_control_plane()
        .replicas(args.replicas)
        .setting("log.level", "info")
        .profile(if args.release { Profile::Release } else { Profile::own() })
        .steps(print_message);
    if args.postgres {
        builder = builder.postgres();
    }
    if args.tls {
        builder = builder.tls();
    }
    if args.features.tenants {
        builder = builder.installed("tenants.enabled", true).installed("tenants.write", true);
    }
    if args.features.models {
        builder = builder.every_controller().installed("model_services.enabled", true);
    }
    if let Some(folder) = &args.state {
        builder = builder.folder(folder);
    }
    let port = match (args.port, &args.exec) {
        (Some(port), _) => Some(port),
        (None, Some(_)) => None,
        (None, None) => Some(port::prefer(PORT)?),
    };
    if let Some(port) = port {
        builder = builder.port(port);
    }
    let world = builder.start().await?;
    if args.features.models {
        print_message("installing the kinds of KServe and Llama Stack, and the rights of people");
        model::install(&world).await?;
    }
    print_message("creating the demo accounts");
    let people = People::open(&world).await?;
    if args.features.models {
        print_message("creating a workspace for alice, with a sample model");
        // In a kept folder alice may have been suspended.
        if let Err(error) = model::create(&world, &people.first).await {
            print_message(&format!("warning: there is no sample model: {error:#}"));
        }
    }
    print_message(&format!("ready after {:.1} s", begin.elapsed().as_secs_f32()));
    Ok((world, people))
}

/// Locks a kept folder for this process.
fn lock(folder: &Path) -> Result<File> {
    private_folder(folder)?;
    let file = File::create(folder.join(".lock")).context("make the lock of the state folder")?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        bail!("{} is in use by another cargo dev; stop that one first", folder.display());
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_usage_is_the_command_that_people_type() {
        let help = Args::command().render_help().to_string();
        assert!(help.contains("Usage: cargo dev -- [OPTIONS]"), "{help}");
    }
}
