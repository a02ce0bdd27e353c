//! `cargo measure`: each figure compared with its baseline, in one interleaved run.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Parser, Subcommand};
use integration::binaries::{Binaries, Profile};
use integration::measure::figure::{Figure, Timing};
use integration::measure::{flood, gateway, issuance, models, plugin, policies, startup, tenants};
use integration::progress::print_message;
use integration::scratch::Scratch;
use integration::world::{World, WorldBuilder};
use serde::Serialize;

/// Measures the plugin and the broker against their baselines, with real programs. The exit code is
/// 1 if a threshold is exceeded.
#[derive(Debug, Parser)]
#[command(name = "cargo measure")]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Print the figures as JSON on standard output instead of as text
    #[arg(long, global = true)]
    json: bool,
    /// Fewer and shorter runs, for a first impression
    #[arg(long, global = true)]
    quick: bool,
    /// Broker to measure, instead of the one that `cargo build --release` makes
    #[arg(long, global = true, value_name = "FILE")]
    broker: Option<PathBuf>,
    /// Compare the gateway and issuance with those of this build of the broker too; repeat the flag
    /// for more builds. The brokers are replicas on one PostgreSQL database. The rows call the first
    /// of these "build 2"
    #[arg(long, global = true, value_name = "FILE")]
    against: Vec<PathBuf>,
}

#[derive(Clone, Debug, Subcommand)]
enum Command {
    /// Cost of the admission policies for the API server, and latency of a suspension
    Policies {
        /// Measure only one of the two
        #[arg(long)]
        only: Option<Part>,
        /// Compare the cost with that of the policies in this manifest, which `tenant-broker
        /// install` of an earlier version printed, instead of with no policies
        #[arg(long, value_name = "MANIFEST")]
        before: Option<PathBuf>,
    },
    /// Issuance and suspension during a flood of unauthenticated requests
    Flood {
        /// Measure only one of the two database engines
        #[arg(long)]
        only: Option<Engine>,
    },
    /// The gateway compared with the API server itself, nginx and `kubectl proxy`
    Gateway {
        /// Measure only one of the five parts
        #[arg(long)]
        only: Option<gateway::Part>,
    },
    /// Tenants: creation, suspension, reads, watches and runs of the broker, with thousands of
    /// namespaces
    Tenants {
        /// Measure only one of the eleven parts
        #[arg(long)]
        only: Option<tenants::TenantPart>,
    },
    /// Model services compared with the calls to the API server that they consist of
    Models {
        /// Measure only one of the five parts
        #[arg(long)]
        only: Option<models::ModelPart>,
    },
}

impl Args {
    /// A release build of the broker, however this program was compiled, unless the caller names a
    /// broker.
    fn broker_profile(&self) -> Profile {
        if self.broker.is_some() { Profile::own() } else { Profile::Release }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    Cost,
    Suspension,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Engine {
    Sqlite,
    Postgres,
}

/// The results of one run.
#[derive(Debug, Default, Serialize)]
struct Measured {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rows: Vec<gateway::Row>,
    figures: Vec<Figure>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    timings: Vec<Timing>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let result = tokio::runtime::Runtime::new()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(measure(&args)));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_message(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

async fn measure(args: &Args) -> Result<()> {
    let is_comparable = matches!(args.command, None | Some(Command::Gateway { .. }));
    ensure!(
        args.against.is_empty() || is_comparable,
        "--against compares the gateway and issuance: use it with `gateway` or without a command"
    );
    let measured = match &args.command {
        None => measure_product(args).await?,
        Some(Command::Policies { only, before }) => {
            measure_policies(args, *only, before.as_deref()).await?
        }
        Some(Command::Flood { only }) => measure_floods(args, *only).await?,
        Some(Command::Gateway { only }) => measure_gateway(args, *only).await?,
        Some(Command::Tenants { only }) => measure_tenants(args, *only).await?,
        Some(Command::Models { only }) => measure_models(args, *only).await?,
    };
    print(args, &measured)?;
    let missed: Vec<&str> = measured
        .figures
        .iter()
        .filter(|figure| !figure.is_met)
        .map(|figure| figure.name.as_str())
        .collect();
    if !missed.is_empty() {
        bail!("thresholds not met: {}", missed.join("; "));
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the figures are this program's data")]
fn print(args: &Args, measured: &Measured) -> Result<()> {
    if args.json {
        println!("{}", serde_json::to_string_pretty(measured)?);
        return Ok(());
    }
    if !measured.rows.is_empty() {
        println!("{}\n", gateway::Row::HEADER);
        for row in &measured.rows {
            println!("{row}");
        }
        println!();
    }
    println!("median (lowest to highest); the ratio is taken pair by pair\n");
    for figure in &measured.figures {
        println!("{figure}\n");
    }
    for timing in &measured.timings {
        println!("{timing}");
    }
    Ok(())
}

fn world(args: &Args) -> WorldBuilder {
    World::builder()
        .own_control_plane()
        .tls()
        .profile(Profile::own())
        .broker_program(args.broker.clone())
        .replica_programs(&args.against)
        .setting("log.level", "info")
        .steps(|step| print_message(&format!("measure: {step}")))
}

/// Measures the plugin, issuance and the broker's start.
async fn measure_product(args: &Args) -> Result<Measured> {
    let quick = args.quick;
    let rounds = |all: usize| if quick { all / 5 } else { all };
    let world = world(args).profile(Profile::Release).start().await?;
    let person = world.person("measured").await?;
    person.login(&[]).await?.success()?;
    person.kubectl().run(["get", "pods"]).await?.success()?;

    print_message("measure: the plugin's cache hit");
    let mut figures = plugin::cache_hit(&person, &world, rounds(200)).await?;
    print_message("measure: kubectl with the exec entry");
    figures.extend(plugin::kubectl_get(&person, &world, rounds(25)).await?);
    print_message("measure: issuance, 1, 4 and 16 callers");
    let length = Duration::from_secs(if quick { 1 } else { 4 });
    let plan = issuance::Plan { rounds: rounds(5).max(2), length };
    figures.extend(issuance::against_direct(&person, &world, plan).await?);
    print_message("measure: the broker's start");
    figures.extend(startup::start_to_ready(&world, rounds(10).max(3)).await?);
    Ok(Measured { figures, ..Measured::default() })
}

/// Measures the admission policies and the kill switch.
async fn measure_policies(
    args: &Args,
    only: Option<Part>,
    before: Option<&Path>,
) -> Result<Measured> {
    let quick = args.quick;
    let mut measured = Measured::default();
    if only != Some(Part::Suspension) {
        print_message("measure: starting two control planes");
        let scratch = Scratch::new("measure")?;
        let programs = Binaries::build(Profile::own(), None, args.broker.as_deref()).await?;
        let (baseline, manifest) = match before {
            None => (policies::Baseline::NoPolicies, String::new()),
            Some(path) => (policies::Baseline::PreviousPolicies, read(path)?),
        };
        let program = programs.tenant_broker();
        let start = async |name| {
            policies::PolicyTestbed::start(&program, &[], &manifest, &scratch.path().join(name))
                .await
        };
        let servers = [start("one").await?, start("other").await?];
        print_message("measure: requests with the policies, compared with the baseline");
        let plan = policies::Plan {
            rounds: if quick { 2 } else { 6 },
            length: Duration::from_millis(150),
            profile: Duration::from_secs(if quick { 3 } else { 10 }),
        };
        measured.figures = policies::cost(&servers, baseline, plan).await?;
    }
    if only != Some(Part::Cost) {
        let world = world(args).start().await?;
        print_message("measure: suspensions");
        measured.timings = policies::latency(&world, if quick { 2 } else { 5 }).await?;
    }
    Ok(measured)
}

/// Reads the manifest of an earlier version, which must contain policies.
fn read(path: &Path) -> Result<String> {
    let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    ensure!(
        text.contains("kind: ValidatingAdmissionPolicy"),
        "{} has no policy: write the output of `tenant-broker install` into it",
        path.display()
    );
    Ok(text)
}

/// Measures issuance and suspension during unauthenticated floods, on both engines. The listener is
/// plain HTTP, so that the flooding client costs as little as possible.
async fn measure_floods(args: &Args, only: Option<Engine>) -> Result<Measured> {
    let quick = args.quick;
    let plan = flood::Plan {
        rounds: if quick { 2 } else { 5 },
        length: Duration::from_secs(if quick { 3 } else { 8 }),
        suspensions: if quick { 8 } else { 16 },
    };
    let mut measured = Measured::default();
    for (engine, name) in [(Engine::Sqlite, "SQLite"), (Engine::Postgres, "PostgreSQL")] {
        if only.is_some_and(|only| only != engine) {
            continue;
        }
        print_message(&format!("measure: floods on {name}"));
        let world = World::builder()
            .own_control_plane()
            .profile(Profile::own())
            .broker_program(args.broker.clone())
            .setting("log.level", "info")
            .steps(|step| print_message(&format!("measure: {step}")));
        let world = if engine == Engine::Postgres { world.postgres() } else { world };
        let testbed = flood::FloodTestbed::new(world.start().await?, plan.suspensions).await?;
        let of_engine = flood::measure(&testbed, name, plan).await?;
        measured.figures.extend(of_engine.figures);
        measured.timings.extend(of_engine.timings);
    }
    Ok(measured)
}

/// Measures the gateway. The broker is a release build, however this program was compiled, unless
/// the caller names another one.
async fn measure_gateway(args: &Args, only: Option<gateway::Part>) -> Result<Measured> {
    let quick = args.quick;
    let world = gateway::without_limits(world(args).profile(args.broker_profile())).start().await?;
    let testbed = gateway::GatewayTestbed::new(world).await?;
    let plan = gateway::Plan {
        rounds: if quick { 2 } else { 7 },
        length: Duration::from_millis(if quick { 500 } else { 1500 }),
        watches: if quick { 200 } else { 1000 },
        memory_rounds: if quick { 1 } else { 3 },
    };
    let mut measured = Measured::default();
    for part in gateway::Part::ALL {
        if only.is_some_and(|only| only != part) {
            continue;
        }
        print_message(&format!("measure: {part}"));
        let of_part = gateway::measure(&testbed, part, plan).await?;
        measured.rows.extend(of_part.rows);
        measured.figures.extend(of_part.figures);
        measured.timings.extend(of_part.timings);
    }
    Ok(measured)
}

/// Measures tenants. As for the gateway, the broker is a release build unless the caller names
/// another one.
async fn measure_tenants(args: &Args, only: Option<tenants::TenantPart>) -> Result<Measured> {
    let quick = args.quick;
    let world =
        gateway::without_limits(tenants::with_tenants(world(args))).profile(args.broker_profile());
    let few = |all: usize| if quick { all.div_ceil(5) } else { all };
    let tenth = |all: usize| if quick { all / 10 } else { all };
    let plan = tenants::TenantPlan {
        size: tenants::Size {
            tenants: tenth(1000),
            namespaces: tenth(5000),
            most_tenants: tenth(5000),
        },
        requests: few(20),
        cheap_requests: few(100),
        suspensions: few(5),
        members: few(10),
        runs: few(10),
        owners: few(3),
        watches: few(12),
        restarts: few(3),
        turns: few(20),
        turn: Duration::from_millis(500),
        profiles: few(4),
        profile: Duration::from_secs(if quick { 3 } else { 10 }),
    };
    let world = world.start().await?;
    let testbed = tenants::TenantTestbed::new(world, plan.size, plan.suspensions).await?;
    let tenants::Measured { figures, timings } = tenants::measure(&testbed, only, plan).await?;
    Ok(Measured { figures, timings, ..Measured::default() })
}

/// Measures model services. As for the gateway, the broker is a release build unless the caller names
/// another one.
async fn measure_models(args: &Args, only: Option<models::ModelPart>) -> Result<Measured> {
    let quick = args.quick;
    let world =
        models::with_model_services(world(args).profile(args.broker_profile())).start().await?;
    let testbed = models::ModelTestbed::new(world).await?;
    let plan = models::ModelPlan {
        rounds: if quick { 2 } else { 7 },
        length: Duration::from_millis(if quick { 500 } else { 1500 }),
        installations: if quick { 5 } else { 30 },
        restarts: if quick { 1 } else { 3 },
    };
    let mut figures = Vec::new();
    for part in models::ModelPart::ALL {
        if only.is_some_and(|only| only != part) {
            continue;
        }
        print_message(&format!("measure: {part}"));
        figures.extend(models::measure(&testbed, part, plan).await?);
    }
    Ok(Measured { figures, ..Measured::default() })
}
