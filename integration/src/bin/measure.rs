//! `cargo measure`: each figure beside its floor, in one interleaved run.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use integration::binaries::Profile;
use integration::measure::{issuance, plugin, startup};
use integration::progress::say;
use integration::world::World;

/// Measures the plugin and the broker against their floors, over real programs.
#[derive(Debug, Parser)]
#[command(name = "cargo measure")]
struct Args {
    /// Print the figures as JSON on standard output instead of as text
    #[arg(long)]
    json: bool,
    /// Fewer and shorter runs, for a first look
    #[arg(long)]
    quick: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let result = tokio::runtime::Runtime::new()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(measure(&args)));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stdout, reason = "the figures are this program's data")]
async fn measure(args: &Args) -> Result<()> {
    let rounds = |all: usize| if args.quick { all / 5 } else { all };
    let world = World::builder()
        .own_control_plane()
        .tls()
        .profile(Profile::Release)
        .setting("log.level", "info")
        .steps(|step| say(&format!("measure: {step}")))
        .start()
        .await?;
    let person = world.person("measured").await?;
    person.login(&[]).await?.success()?;
    person.kubectl().run(["get", "pods"]).await?.success()?;

    say("measure: the plugin's cache hit");
    let mut figures = plugin::cache_hit(&person, &world, rounds(200)).await?;
    say("measure: kubectl with the exec entry");
    figures.extend(plugin::kubectl_get(&person, &world, rounds(25)).await?);
    say("measure: issuance, 1, 4 and 16 callers");
    let length = Duration::from_secs(if args.quick { 1 } else { 4 });
    let plan = issuance::Plan { rounds: rounds(5).max(2), length };
    figures.extend(issuance::against_direct(&person, &world, plan).await?);
    say("measure: the broker's start");
    figures.extend(startup::start_to_ready(&world, rounds(10).max(3)).await?);

    if args.json {
        println!("{}", serde_json::to_string_pretty(&figures)?);
    } else {
        println!("median (lowest to highest); the ratio is taken pair by pair\n");
        for figure in &figures {
            println!("{figure}\n");
        }
    }
    Ok(())
}
