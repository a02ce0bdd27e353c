//! Idle watches through the gateway: as many as a large company has at once, for as long as people
//! leave them open.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use hyper::body::Incoming;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use secrecy::ExposeSecret as _;
use serde_json::json;

use super::step;
use crate::binaries::Profile;
use crate::measure::gateway::caller::Caller;
use crate::measure::gateway::way::{Name, Way};
use crate::measure::gateway::without_limits;
use crate::measure::process_memory::rss_mib;
use crate::progress::say;
use crate::world::World;

/// Tenants who have them.
const PEOPLE: usize = 10;
/// Watches that are opened at a time.
const AT_ONCE: usize = 16;
/// File descriptors that a process needs besides one for each watch, those of the connections to the
/// API server included, which a hundred share.
const OTHERS: u64 = 400;
/// The object that changes at the end.
const TICKER: &str = "ticker";
/// What opening them needed is given back within this time.
const SETTLE: Duration = Duration::from_secs(5);
/// How often is told how it stands.
const REPORT: Duration = Duration::from_mins(1);
/// How long a change may take to reach all.
const PATIENCE: Duration = Duration::from_mins(2);
/// MiB by which the broker may have grown in the end: what is flat moves a little.
const FLAT: f64 = 8.0;

/// A person's way, and what they watch.
struct Tenant {
    way: Way,
    namespace: String,
}

/// One watch that is open.
struct Watch {
    caller: Caller,
    body: Incoming,
}

/// Opens so many watches, each on a connection of its own, leaves them alone for so long, and sees a
/// change through each.
///
/// # Errors
/// One does not open, or ends, or sees nothing; the broker needs more and more memory.
pub async fn run(watches: usize, idle: Duration) -> Result<()> {
    say("watches");
    let watches = possible(watches)?;
    let start = World::builder()
        .own_control_plane()
        .tls()
        .profile(Profile::Release)
        .setting("log.level", "info");
    let start = without_limits(start).start();
    let world = step("start the control plane and the broker", Box::pin(start)).await?;
    let tenants = step(&format!("make {PEOPLE} people"), tenants(&world)).await?;
    let broker = world.broker().pid().context("the broker runs no more")?;
    let server = world.cluster().api_server_pid();
    let needed = || (rss_mib(broker), rss_mib(server));
    let count = f64::from(u32::try_from(watches).context("count the watches")?);

    // One for each person first: tokens and pools are there then.
    drop(open(&tenants, PEOPLE, idle).await?);
    tokio::time::sleep(SETTLE).await;
    let before = needed();
    let what = format!("open {watches} watches, {AT_ONCE} at a time");
    let mut all = step(&what, open(&tenants, watches, idle)).await?;
    tokio::time::sleep(SETTLE).await;
    let opened = needed();
    say(&format!(
        "  the broker needs {:.1} MiB, {:.1} before: {:.1} KiB for each watch; the API server {:.0} \
         MiB, {:.1} KiB for each",
        opened.0,
        before.0,
        (opened.0 - before.0) * 1024.0 / count,
        opened.1,
        (opened.1 - before.1) * 1024.0 / count,
    ));

    let mut most = opened.0;
    let began = Instant::now();
    while began.elapsed() < idle {
        tokio::time::sleep(REPORT.min(idle.saturating_sub(began.elapsed()))).await;
        let (now, of_server) = needed();
        most = most.max(now);
        say(&format!(
            "  after {:>4} s the broker needs {now:.1} MiB, the API server {of_server:.0} MiB",
            began.elapsed().as_secs()
        ));
    }
    ensure!(most - opened.0 < FLAT, "the broker needs {:.1} MiB more by now", most - opened.0);
    step("change what they watch, and see it in each", changed(&world, &tenants, &mut all)).await?;
    drop(all);
    tokio::time::sleep(SETTLE).await;
    say(&format!("  {:.1} MiB when all are closed", needed().0));
    Ok(())
}

/// As many of these as the descriptors of one process allow. The limit of programs that are started
/// from here is raised as far as it may be.
fn possible(watches: usize) -> Result<usize> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised).context("raise the limit of file descriptors")?;
    let possible = limit.maximum.map_or(watches, |most| {
        usize::try_from(most.saturating_sub(OTHERS)).unwrap_or(watches).min(watches)
    });
    if possible < watches {
        say(&format!(
            "  {possible} watches instead of {watches}: a process may have {} file descriptors \
             here, and the broker needs one for each",
            limit.maximum.unwrap_or_default()
        ));
    }
    Ok(possible)
}

async fn tenants(world: &World) -> Result<Vec<Tenant>> {
    let mut tenants = Vec::with_capacity(PEOPLE);
    for number in 0..PEOPLE {
        let person = world.person(&format!("person-{number}")).await?;
        let session = person.sign_in().await?;
        let api = world.stranger()?.with_token(session.access_token.clone());
        let (workspace, _) = api.init("basic").await?;
        change(world, &workspace.namespace, "first").await?;
        let base = format!("clusters/{}/", workspace.cluster);
        let base = world.broker().public_url()?.join(&base).context("make the gateway's URL")?;
        let authority = world.cluster().authority().certificate();
        let way = Way::new(Name::Gateway, &base, authority)?
            .with_token(session.access_token.expose_secret())?;
        tenants.push(Tenant { way, namespace: workspace.namespace });
    }
    Ok(tenants)
}

/// Opens watches of all tenants alike. The API server would end them within the hour if it were not
/// told how long they are wanted.
async fn open(tenants: &[Tenant], watches: usize, idle: Duration) -> Result<Vec<Watch>> {
    let wanted = (idle + Duration::from_hours(1)).as_secs();
    let one = |number: usize| async move {
        let tenant = &tenants[number % tenants.len()];
        let path = format!(
            "/api/v1/namespaces/{}/configmaps?watch=true&fieldSelector=metadata.name%3D{TICKER}\
             &timeoutSeconds={wanted}",
            tenant.namespace
        );
        let mut caller = Caller::connect(&tenant.way, true).await?;
        let mut body = caller.begin(&path).await?.into_body();
        caller.piece(&mut body).await?.context("a watch ended at once")?;
        Ok::<_, anyhow::Error>(Watch { caller, body })
    };
    stream::iter(0..watches).map(one).buffer_unordered(AT_ONCE).try_collect().await
}

async fn changed(world: &World, tenants: &[Tenant], all: &mut [Watch]) -> Result<()> {
    for tenant in tenants {
        change(world, &tenant.namespace, "second").await?;
    }
    let seen = async {
        for watch in all {
            let piece = watch.caller.piece(&mut watch.body).await?;
            piece.context("a watch ended")?;
        }
        Ok(())
    };
    tokio::time::timeout(PATIENCE, seen).await.context("a watch shows nothing")?
}

async fn change(world: &World, namespace: &str, text: &str) -> Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(world.cluster().admin().await?, namespace);
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": TICKER},
        "data": {"text": text}});
    let how = PatchParams::apply("acceptance").force();
    maps.patch(TICKER, &how, &Patch::Apply(&object)).await.context("change a ConfigMap")?;
    Ok(())
}
