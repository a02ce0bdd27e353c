//! Effect of unauthenticated floods on signed-in users: issuance and suspension during a flood,
//! compared in turn with the same flood of a path that does no work.

mod client;
mod testbed;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tenant_shared::SuspendRequest;

pub use self::client::{ARGUMENT, run as flood};
use self::client::{CONNECTIONS, FloodInput, ResponseRates, UnauthenticatedFlood};
pub use self::testbed::FloodTestbed;
use super::figure::{Figure, Spread, Threshold, Timing};
use super::process_memory::{PeakMemory, rss_mib};

/// Threshold of the slowdown, compared with the flood that does no work.
const MAX_SLOWDOWN: f64 = 2.0;
/// Threshold of the broker's memory growth in MiB, from before a flood to after it.
const MAX_MEMORY_GROWTH_MIB: f64 = 32.0;
/// Time in which the flood uses up the bursts of the rate limits.
const BURST_TIME: Duration = Duration::from_secs(2);
/// Pause between two issuances of a tenant.
const ISSUANCE_PAUSE: Duration = Duration::from_millis(5);

/// The kind of request that the flood consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FloodKind {
    Login,
    LoginFromManyAddresses,
    Token,
    UnknownToken,
    RefusedBodies,
}

impl FloodKind {
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

    /// Returns the input of the flood, or, unless `works`, of the same flood of a path that does
    /// not exist.
    fn input(self, testbed: &FloodTestbed, works: bool) -> FloodInput {
        const FORM: &str = "grant_type=refresh_token&client_id=kubectl-tenant&\
                            refresh_token=tbr_unknown";
        let broker = testbed.broker();
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
        FloodInput {
            request: format!("{method} {path} HTTP/1.1\r\nHost: {broker}\r\n{headers}\r\n{body}"),
            broker,
            chunks: self == Self::RefusedBodies,
            many_addresses: self == Self::LoginFromManyAddresses,
        }
    }
}

/// The extent of the measurement.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Number of pairs of samples for each flood.
    pub rounds: usize,
    /// Duration of issuance during one flood.
    pub length: Duration,
    /// Number of workspaces that are suspended during one flood.
    pub suspensions: usize,
}

/// The results.
#[derive(Debug, Default)]
pub struct Measured {
    /// Figures with a threshold, or with a baseline.
    pub figures: Vec<Figure>,
    /// Figures without a baseline.
    pub timings: Vec<Timing>,
}

/// Result of one sample; times in ms, memory in MiB.
struct FloodSample {
    issuance: [f64; 2],
    suspension: [f64; 2],
    unavailable: f64,
    before: f64,
    after: f64,
    grown: f64,
    flooded: ResponseRates,
}

/// Measures all floods of a broker on this engine.
///
/// # Errors
/// A call fails.
pub async fn measure(testbed: &FloodTestbed, engine: &str, plan: Plan) -> Result<Measured> {
    let mut measured = Measured::default();
    for kind in FloodKind::ALL {
        let (mut beside, mut baseline) = (Vec::new(), Vec::new());
        for round in 0..plan.rounds {
            for works in [round % 2 == 0, round % 2 != 0] {
                let one = sample(testbed, &kind.input(testbed, works), plan).await?;
                if works { beside.push(one) } else { baseline.push(one) }
            }
        }
        let name = format!("{engine}, {CONNECTIONS} connections, {}", kind.name());
        add(&mut measured, &name, &beside, &baseline);
    }
    Ok(measured)
}

async fn sample(testbed: &FloodTestbed, input: &FloodInput, plan: Plan) -> Result<FloodSample> {
    testbed.resume_all().await?;
    // Warms the broker's cache of the session, as for a user who is working.
    ensure!(testbed.issue().await?.is_success(), "no token before the flood");
    let before = rss_mib(testbed.pid());
    let memory = PeakMemory::of(testbed.pid())?;
    let flood = UnauthenticatedFlood::begin(testbed.flood_program(), input).await?;
    tokio::time::sleep(BURST_TIME).await;
    let mut unavailable = 0_u32;
    let issuing = async {
        let (mut times, began, mut unavailable) = (Vec::new(), Instant::now(), 0_u32);
        while began.elapsed() < plan.length {
            let asked = Instant::now();
            let status = testbed.issue().await?;
            times.push(asked.elapsed().as_secs_f64() * 1e3);
            unavailable += u32::from(!status.is_success());
            tokio::time::sleep(ISSUANCE_PAUSE).await;
        }
        anyhow::Ok((times, unavailable))
    };
    let suspending = async {
        let mut times = Vec::new();
        let pause = plan.length / u32::try_from(plan.suspensions)?.max(1);
        for workspace in testbed.to_suspend() {
            let reason = SuspendRequest { reason: Some("measured".to_owned()) };
            let asked = Instant::now();
            testbed.operator().suspend(*workspace, &reason).await?;
            times.push(asked.elapsed().as_secs_f64() * 1e3);
            tokio::time::sleep(pause.saturating_sub(asked.elapsed())).await;
        }
        anyhow::Ok(times)
    };
    let ((issued, failed), suspended) = tokio::try_join!(issuing, suspending)?;
    unavailable += failed;
    let flooded = flood.end().await?;
    let grown = memory.grown_mib()?;
    testbed.settle().await;
    Ok(FloodSample {
        issuance: [quantile(issued.clone(), 0.5), quantile(issued, 0.99)],
        suspension: [quantile(suspended.clone(), 0.5), quantile(suspended, 0.99)],
        unavailable: f64::from(unavailable),
        before,
        after: rss_mib(testbed.pid()),
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

fn add(measured: &mut Measured, name: &str, beside: &[FloodSample], baseline: &[FloodSample]) {
    let figure = |what: &str, pick: fn(&FloodSample) -> f64, threshold| {
        let pairs: Vec<_> =
            beside.iter().zip(baseline).map(|(one, other)| (pick(one), pick(other))).collect();
        let baseline = "beside a flood of 404";
        Figure::of_pairs(format!("{name}: {what}"), "ms", baseline, &pairs, threshold)
    };
    let threshold = Threshold::AtMost(MAX_SLOWDOWN);
    measured.figures.extend(figure("issuance, p50", |sample| sample.issuance[0], Threshold::None));
    measured.figures.extend(figure("issuance, p99", |sample| sample.issuance[1], threshold));
    measured.figures.extend(figure(
        "suspension, p50",
        |sample| sample.suspension[0],
        Threshold::None,
    ));
    measured.figures.extend(figure("suspension, p99", |sample| sample.suspension[1], threshold));
    let memory: Vec<_> = beside.iter().map(|sample| (sample.after, sample.before)).collect();
    measured.figures.extend(Figure::of_pairs(
        format!("{name}: memory of the broker after the flood"),
        "MiB",
        "before it",
        &memory,
        Threshold::AddedAtMost(MAX_MEMORY_GROWTH_MIB),
    ));
    let refused: Vec<_> = beside.iter().map(|sample| (sample.unavailable, 1.0)).collect();
    measured.figures.extend(Figure::of_pairs(
        format!("{name}: issuances that failed"),
        "",
        "limit (exclusive)",
        &refused,
        Threshold::ValueBelow(1.0),
    ));
    let grown = Spread::of(beside.iter().map(|sample| sample.grown));
    measured.timings.extend(grown.map(|value| Timing {
        name: format!("{name}: peak memory growth"),
        unit: "MiB",
        value,
    }));
    let mut answers: BTreeMap<u16, Vec<f64>> = BTreeMap::new();
    for (status, rate) in beside.iter().flat_map(|sample| &sample.flooded.answers) {
        answers.entry(*status).or_default().push(*rate);
    }
    measured.timings.extend(answers.into_iter().filter_map(|(status, rates)| {
        let name = format!("{name}: answers {status}");
        Some(Timing { name, unit: "1/s", value: Spread::of(rates)? })
    }));
    let plain = baseline.iter().map(|sample| sample.flooded.answers.values().sum::<f64>());
    measured.timings.extend(Spread::of(plain).map(|value| Timing {
        name: format!("{name}: answers of the flood of 404"),
        unit: "1/s",
        value,
    }));
}
