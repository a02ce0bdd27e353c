//! What people who are signed in notice of a flood of unauthenticated requests: issuance and suspension
//! beside the flood, and beside the same flood of a path that does no work, in turn.

mod client;
mod place;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tenant_shared::SuspendRequest;

pub use self::client::{ARGUMENT, run as flood};
use self::client::{CONNECTIONS, Flood, Flooded, Told};
pub use self::place::Place;
use super::figure::{Figure, Promise, Spread, Timing};
use super::process_memory::{PeakMemory, rss_mib};

/// How much slower than beside the flood that does no work.
const AT_MOST: f64 = 2.0;
/// MiB that the broker may hold more after a flood than before it.
const MEMORY: f64 = 32.0;
/// Until the bursts of the limits are used up.
const BEGINS: Duration = Duration::from_secs(2);
/// Pause between two issuances of a tenant.
const PACE: Duration = Duration::from_millis(5);

/// What is flooded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Login,
    LoginFromManyAddresses,
    Token,
    UnknownToken,
    RefusedBodies,
}

impl What {
    const ALL: [Self; 5] = [
        Self::Login,
        Self::LoginFromManyAddresses,
        Self::Token,
        Self::UnknownToken,
        Self::RefusedBodies,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Login => "GET /login",
            Self::LoginFromManyAddresses => "GET /login from 200 addresses",
            Self::Token => "POST /oauth2/token",
            Self::UnknownToken => "unknown tokens at the gateway",
            Self::RefusedBodies => "refused bodies in one-byte chunks at the gateway",
        }
    }

    /// The flood, or the same one of a path that nothing answers.
    fn told(self, place: &Place, works: bool) -> Told {
        const FORM: &str = "grant_type=refresh_token&client_id=kubectl-tenant&\
                            refresh_token=tbr_unknown";
        let broker = place.broker();
        let (method, path, headers, body) = match self {
            Self::Login | Self::LoginFromManyAddresses => ("GET", "/login", String::new(), ""),
            Self::Token => {
                let form = "Content-Type: application/x-www-form-urlencoded\r\n";
                let length = FORM.len();
                let headers = format!("{form}Content-Length: {length}\r\n");
                ("POST", "/oauth2/token", headers, FORM)
            }
            Self::UnknownToken => {
                let header = format!("Authorization: Bearer tba_{}\r\n", "x".repeat(43));
                ("GET", "/clusters/internal-cluster/version", header, "")
            }
            Self::RefusedBodies => {
                let header = "Transfer-Encoding: chunked\r\n".to_owned();
                ("POST", "/clusters/internal-cluster/version", header, "")
            }
        };
        let path = if works { path } else { "/nothing" };
        Told {
            request: format!("{method} {path} HTTP/1.1\r\nHost: {broker}\r\n{headers}\r\n{body}"),
            broker,
            chunks: self == Self::RefusedBodies,
            many_addresses: self == Self::LoginFromManyAddresses,
        }
    }
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Pairs of turns of each flood.
    pub rounds: usize,
    /// How long tokens are asked for beside a flood.
    pub length: Duration,
    /// Workspaces that are suspended beside it.
    pub suspensions: usize,
}

/// What was measured.
#[derive(Debug, Default)]
pub struct Measured {
    /// With a promise, or beside a floor.
    pub figures: Vec<Figure>,
    /// Without.
    pub timings: Vec<Timing>,
}

/// One turn. Times in ms, memory in MiB.
struct Turn {
    issuance: [f64; 2],
    suspension: [f64; 2],
    unavailable: f64,
    before: f64,
    after: f64,
    grown: f64,
    flooded: Flooded,
}

/// Measures all floods of a broker on this engine.
///
/// # Errors
/// A call fails.
pub async fn measure(place: &Place, engine: &str, plan: Plan) -> Result<Measured> {
    let mut measured = Measured::default();
    for what in What::ALL {
        let (mut beside, mut floor) = (Vec::new(), Vec::new());
        for round in 0..plan.rounds {
            for works in [round % 2 == 0, round % 2 != 0] {
                let one = turn(place, &what.told(place, works), plan).await?;
                if works { beside.push(one) } else { floor.push(one) }
            }
        }
        let name = format!("{engine}, {CONNECTIONS} connections, {}", what.name());
        add(&mut measured, &name, &beside, &floor);
    }
    Ok(measured)
}

async fn turn(place: &Place, told: &Told, plan: Plan) -> Result<Turn> {
    place.resume_all().await?;
    // The session is known, as that of somebody who works.
    ensure!(place.issue().await?.is_success(), "no token before the flood");
    let before = rss_mib(place.pid());
    let memory = PeakMemory::of(place.pid())?;
    let flood = Flood::begin(place.flood_program(), told).await?;
    tokio::time::sleep(BEGINS).await;
    let mut unavailable = 0_u32;
    let issuing = async {
        let (mut times, began, mut unavailable) = (Vec::new(), Instant::now(), 0_u32);
        while began.elapsed() < plan.length {
            let asked = Instant::now();
            let status = place.issue().await?;
            times.push(asked.elapsed().as_secs_f64() * 1e3);
            unavailable += u32::from(!status.is_success());
            tokio::time::sleep(PACE).await;
        }
        anyhow::Ok((times, unavailable))
    };
    let suspending = async {
        let mut times = Vec::new();
        let pause = plan.length / u32::try_from(plan.suspensions)?.max(1);
        for workspace in place.to_suspend() {
            let reason = SuspendRequest { reason: Some("measured".to_owned()) };
            let asked = Instant::now();
            place.operator().suspend(*workspace, &reason).await?;
            times.push(asked.elapsed().as_secs_f64() * 1e3);
            tokio::time::sleep(pause.saturating_sub(asked.elapsed())).await;
        }
        anyhow::Ok(times)
    };
    let ((issued, failed), suspended) = tokio::try_join!(issuing, suspending)?;
    unavailable += failed;
    let flooded = flood.end().await?;
    let grown = memory.grown_mib()?;
    place.settle().await;
    Ok(Turn {
        issuance: [quantile(issued.clone(), 0.5), quantile(issued, 0.99)],
        suspension: [quantile(suspended.clone(), 0.5), quantile(suspended, 0.99)],
        unavailable: f64::from(unavailable),
        before,
        after: rss_mib(place.pid()),
        grown,
        flooded,
    })
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an index of some thousand values"
)]
fn quantile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = ((values.len() as f64 * share) as usize).min(values.len().saturating_sub(1));
    values.get(at).copied().unwrap_or_default()
}

fn add(measured: &mut Measured, name: &str, beside: &[Turn], floor: &[Turn]) {
    let figure = |what: &str, pick: fn(&Turn) -> f64, promise| {
        let pairs: Vec<_> =
            beside.iter().zip(floor).map(|(one, other)| (pick(one), pick(other))).collect();
        let floor = "beside a flood of 404";
        Figure::of_pairs(format!("{name}: {what}"), "ms", floor, &pairs, promise)
    };
    let promise = Promise::AtMost(AT_MOST);
    measured.figures.extend(figure("issuance, p50", |turn| turn.issuance[0], Promise::None));
    measured.figures.extend(figure("issuance, p99", |turn| turn.issuance[1], promise));
    measured.figures.extend(figure("suspension, p50", |turn| turn.suspension[0], Promise::None));
    measured.figures.extend(figure("suspension, p99", |turn| turn.suspension[1], promise));
    let memory: Vec<_> = beside.iter().map(|turn| (turn.after, turn.before)).collect();
    measured.figures.extend(Figure::of_pairs(
        format!("{name}: memory of the broker after the flood"),
        "MiB",
        "before it",
        &memory,
        Promise::AddedAtMost(MEMORY),
    ));
    let refused: Vec<_> = beside.iter().map(|turn| (turn.unavailable, 1.0)).collect();
    measured.figures.extend(Figure::of_pairs(
        format!("{name}: issuances that failed"),
        "",
        "allowed are fewer than",
        &refused,
        Promise::ValueBelow(1.0),
    ));
    let grown = Spread::of(beside.iter().map(|turn| turn.grown));
    measured.timings.extend(grown.map(|value| Timing {
        name: format!("{name}: memory at the peak, more than before"),
        unit: "MiB",
        value,
    }));
    let mut answers: BTreeMap<u16, Vec<f64>> = BTreeMap::new();
    for (status, rate) in beside.iter().flat_map(|turn| &turn.flooded.answers) {
        answers.entry(*status).or_default().push(*rate);
    }
    measured.timings.extend(answers.into_iter().filter_map(|(status, rates)| {
        let name = format!("{name}: answers {status}");
        Some(Timing { name, unit: "1/s", value: Spread::of(rates)? })
    }));
    let plain = floor.iter().map(|turn| turn.flooded.answers.values().sum::<f64>());
    measured.timings.extend(Spread::of(plain).map(|value| Timing {
        name: format!("{name}: answers of the flood of 404"),
        unit: "1/s",
        value,
    }));
}
