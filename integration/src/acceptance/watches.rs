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
use crate::measure::gateway::route::{Route, RouteName};
use crate::measure::gateway::without_limits;
use crate::measure::process_memory::rss_mib;
use crate::progress::print_message;
use crate::world::World;

/// Number of tenants that share the watches.
const TENANTS: usize = 10;
/// Number of watches that are opened concurrently.
const OPEN_CONCURRENCY: usize = 16;
/// File descriptors that a process needs besides one for each watch, including the connections to
/// the API server, each of which a hundred watches share.
const OTHER_DESCRIPTORS: u64 = 400;
/// Name of the ConfigMap that changes at the end.
const TICKER: &str = "ticker";
/// Time after which the memory that opening the watches needed is returned.
const SETTLE_TIME: Duration = Duration::from_secs(5);
/// Interval between two progress reports.
const REPORT_INTERVAL: Duration = Duration::from_mins(1);
/// Time limit for a change to reach all watches.
const CHANGE_TIMEOUT: Duration = Duration::from_mins(2);
/// Limit of the broker's memory growth in MiB; flat memory still moves a little.
const MAX_GROWTH_MIB: f64 = 8.0;

/// A tenant: their route through the gateway and the namespace that they watch.
struct Tenant {
    route: Route,
    namespace: String,
}

/// One open watch.
struct Watch {
    caller: Caller,
    body: Incoming,
}

/// Opens `watches` watches, each on its own connection, leaves them idle for `idle`, and checks
/// that a change reaches each of them.
///
/// # Errors
/// A watch does not open, ends or sees no change, or the broker's memory keeps growing.
pub async fn run(watches: usize, idle: Duration) -> Result<()> {
    print_message("watches");
    let watches = possible(watches)?;
    let start = World::builder()
        .own_control_plane()
        .tls()
        .profile(Profile::Release)
        // All watches come from one address.
        .setting("trusted_proxies", "127.0.0.1")
        .setting("log.level", "info");
    let start = without_limits(start).start();
    let world = step("start the control plane and the broker", Box::pin(start)).await?;
    let tenants = step(&format!("make {TENANTS} people"), tenants(&world)).await?;
    let broker = world.broker().pid().context("the broker has stopped")?;
    let server = world.cluster().api_server_pid();
    let needed = || (rss_mib(broker), rss_mib(server));
    let count = f64::from(u32::try_from(watches).context("count the watches")?);

    // One watch for each person first, so that tokens and pools exist afterwards.
    drop(open(&tenants, TENANTS, idle).await?);
    tokio::time::sleep(SETTLE_TIME).await;
    let before = needed();
    let what = format!("open {watches} watches, {OPEN_CONCURRENCY} at a time");
    let mut all = step(&what, open(&tenants, watches, idle)).await?;
    tokio::time::sleep(SETTLE_TIME).await;
    let opened = needed();
    print_message(&format!(
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
        tokio::time::sleep(REPORT_INTERVAL.min(idle.saturating_sub(began.elapsed()))).await;
        let (now, of_server) = needed();
        most = most.max(now);
        print_message(&format!(
            "  after {:>4} s the broker needs {now:.1} MiB, the API server {of_server:.0} MiB",
            began.elapsed().as_secs()
        ));
    }
    ensure!(
        most - opened.0 < MAX_GROWTH_MIB,
        "the broker needs {:.1} MiB more by now",
        most - opened.0
    );
    step(
        "change every watched object and see it in every watch",
        changed(&world, &tenants, &mut all),
    )
    .await?;
    drop(all);
    tokio::time::sleep(SETTLE_TIME).await;
    print_message(&format!("  {:.1} MiB when all watches are closed", needed().0));
    Ok(())
}

/// Reduces `watches` to what the descriptor limit of one process allows. Raises the limit of the
/// programs that are started from here as far as permitted.
fn possible(watches: usize) -> Result<usize> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised).context("raise the limit of file descriptors")?;
    let possible = limit.maximum.map_or(watches, |most| {
        usize::try_from(most.saturating_sub(OTHER_DESCRIPTORS)).unwrap_or(watches).min(watches)
    });
    if possible < watches {
        print_message(&format!(
            "  {possible} watches instead of {watches}: a process may have {} file descriptors \
             here, and the broker needs one for each",
            limit.maximum.unwrap_or_default()
        ));
    }
    Ok(possible)
}

async fn tenants(world: &World) -> Result<Vec<Tenant>> {
    let mut tenants = Vec::with_capacity(TENANTS);
    for number in 0..TENANTS {
        let person = world.person(&format!("person-{number}")).await?;
        let session = person.sign_in().await?;
        let api = world.anonymous_api()?.with_token(session.access_token.clone());
        let (workspace, _) = api.init("basic").await?;
        change(world, &workspace.namespace, "first").await?;
        let base = format!("clusters/{}/", workspace.cluster);
        let base = world.broker().public_url()?.join(&base).context("make the gateway's URL")?;
        let authority = world.cluster().authority().certificate();
        let route = Route::new(RouteName::Gateway, &base, authority)?
            .with_token(session.access_token.expose_secret())?;
        tenants.push(Tenant { route, namespace: workspace.namespace });
    }
    Ok(tenants)
}

/// Opens watches, spread evenly over the tenants. The API server would end them within the hour if
/// `timeoutSeconds` did not say how long they are wanted.
async fn open(tenants: &[Tenant], watches: usize, idle: Duration) -> Result<Vec<Watch>> {
    let wanted = (idle + Duration::from_hours(1)).as_secs();
    let one = |number: usize| async move {
        let tenant = &tenants[number % tenants.len()];
        let path = format!(
            "/api/v1/namespaces/{}/configmaps?watch=true&fieldSelector=metadata.name%3D{TICKER}\
             &timeoutSeconds={wanted}",
            tenant.namespace
        );
        let mut caller = Caller::connect(&tenant.route, true).await?;
        let mut body = caller.open(&path).await?.into_body();
        caller.next_chunk(&mut body).await?.context("a watch ended at once")?;
        Ok::<_, anyhow::Error>(Watch { caller, body })
    };
    stream::iter(0..watches).map(one).buffer_unordered(OPEN_CONCURRENCY).try_collect().await
}

async fn changed(world: &World, tenants: &[Tenant], all: &mut [Watch]) -> Result<()> {
    for tenant in tenants {
        change(world, &tenant.namespace, "second").await?;
    }
    let seen = async {
        for watch in all {
            let piece = watch.caller.next_chunk(&mut watch.body).await?;
            piece.context("a watch ended")?;
        }
        Ok(())
    };
    tokio::time::timeout(CHANGE_TIMEOUT, seen).await.context("a watch shows nothing")?
}

async fn change(world: &World, namespace: &str, text: &str) -> Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(world.cluster().admin().await?, namespace);
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": TICKER},
        "data": {"text": text}});
    let how = PatchParams::apply("acceptance").force();
    maps.patch(TICKER, &how, &Patch::Apply(&object)).await.context("change a ConfigMap")?;
    Ok(())
}
