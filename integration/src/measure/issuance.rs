//! Issuance through the broker compared with TokenRequest directly: the same TLS client and the
//! same number of connections, in turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use reqwest::{Client, RequestBuilder};
use secrecy::ExposeSecret;

use super::figure::{Figure, Threshold};
use super::process_time::cpu_ms;
use crate::http_client;

/// An endpoint that issues tokens.
#[derive(Clone, Debug)]
pub struct TokenEndpoint {
    /// The client; it keeps its connections.
    pub client: Client,
    /// URL of the POST request.
    pub url: String,
    /// Body of the POST request.
    pub body: Option<String>,
    /// Bearer token of the request.
    pub bearer: Option<String>,
}

impl TokenEndpoint {
    fn request(&self) -> RequestBuilder {
        let mut request = self.client.post(&self.url);
        if let Some(bearer) = &self.bearer {
            request = request.bearer_auth(bearer);
        }
        match &self.body {
            Some(body) => request.header("content-type", "application/json").body(body.clone()),
            None => request.header("content-length", "0"),
        }
    }

    /// Requests a token and checks that one is returned.
    ///
    /// # Errors
    /// No token was returned.
    pub async fn request_token(&self) -> Result<()> {
        let answer = self.request().send().await.context("send the request")?;
        let status = answer.status();
        let body = answer.text().await.context("read the answer")?;
        if !status.is_success() || !body.contains("\"token\"") {
            bail!("{} answered {status}: {}", self.url, body.chars().take(300).collect::<String>());
        }
        Ok(())
    }
}

/// The result of one run.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Tokens a second.
    pub rate: f64,
    /// CPU milliseconds for one token, for each watched process in order.
    pub cpu_ms: [f64; 3],
}

/// Runs this number of callers for this time, and measures the CPU time of three processes.
///
/// # Errors
/// A call failed.
pub async fn run(
    target: &TokenEndpoint,
    callers: usize,
    length: Duration,
    watched: [u32; 3],
) -> Result<Run> {
    let stop = Arc::new(AtomicBool::new(false));
    let count = Arc::new(AtomicU64::new(0));
    let mut before = [0.0; 3];
    for (index, pid) in watched.into_iter().enumerate() {
        before[index] = cpu_ms(pid)?;
    }
    let began = Instant::now();
    let tasks: Vec<_> = (0..callers)
        .map(|_| {
            let (target, stop, count) = (target.clone(), Arc::clone(&stop), Arc::clone(&count));
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    target.request_token().await?;
                    count.fetch_add(1, Ordering::Relaxed);
                }
                anyhow::Ok(())
            })
        })
        .collect();
    tokio::time::sleep(length).await;
    stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.context("a caller panicked")??;
    }
    let elapsed = began.elapsed().as_secs_f64();
    let count = f64::from(u32::try_from(count.load(Ordering::Relaxed)).unwrap_or(u32::MAX));
    let mut cpu = [0.0; 3];
    for (index, pid) in watched.into_iter().enumerate() {
        cpu[index] = (cpu_ms(pid)? - before[index]) / count.max(1.0);
    }
    Ok(Run { rate: count / elapsed, cpu_ms: cpu })
}

/// The extent of the measurement.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Number of pairs of runs for each number of callers.
    pub rounds: usize,
    /// Length of one run.
    pub length: Duration,
}

/// Compares issuance through the broker with TokenRequest directly and through the replicas of the
/// world, with 1, 4 and 16 callers, in turn. The same client requests all sides over TLS, with one
/// kept connection for each caller.
///
/// # Errors
/// A call fails.
pub async fn against_direct(
    person: &crate::person::Person,
    world: &crate::world::World,
    plan: Plan,
) -> Result<Vec<Figure>> {
    let session = person.sign_in().await?;
    let api = world.anonymous_api()?.with_token(session.access_token.clone());
    let workspace = api.workspaces(false).await?.items.into_iter().next();
    let workspace = workspace.context("the person has no workspace")?;
    let authority = world.cluster().authority().certificate();
    let through = world
        .brokers()
        .iter()
        .map(|broker| {
            Ok(TokenEndpoint {
                client: http_client::builder(Some(authority))?.http1_only().build()?,
                url: format!("{}api/v1/workspaces/{}/credentials", broker.url()?, workspace.id),
                body: None,
                bearer: Some(session.access_token.expose_secret().to_owned()),
            })
        })
        .collect::<Result<Vec<_>>>()?;
    let identity = world.cluster().broker_identity();
    let pem = format!("{}{}", identity.certificate, identity.key);
    let direct = TokenEndpoint {
        client: http_client::builder(Some(authority))?
            .identity(reqwest::Identity::from_pem(pem.as_bytes())?)
            .http1_only()
            .build()?,
        url: format!(
            "{}api/v1/namespaces/{}/serviceaccounts/{}/token",
            world.cluster().url(),
            workspace.namespace,
            tenant_shared::SERVICE_ACCOUNT_NAME
        ),
        body: Some(
            serde_json::json!({
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"expirationSeconds": tenant_shared::TOKEN_LIFETIME_SECONDS, "audiences": []},
            })
            .to_string(),
        ),
        bearer: None,
    };
    // The first target is the baseline, the second the measured broker.
    let mut targets = vec![(direct, world.broker())];
    targets.extend(through.into_iter().zip(world.brokers()));
    let mut figures = Vec::new();
    for callers in [1, 4, 16] {
        let mut rounds = Vec::with_capacity(plan.rounds);
        for round in 0..plan.rounds {
            let mut runs = vec![None; targets.len()];
            for turn in 0..targets.len() {
                let index = (round + turn) % targets.len();
                let (target, broker) = &targets[index];
                let watched = [
                    broker.pid().context("the broker has stopped")?,
                    world.cluster().api_server_pid(),
                    world.cluster().etcd_pid(),
                ];
                runs[index] = Some(run(target, callers, plan.length, watched).await?);
            }
            rounds.push(runs.into_iter().flatten().collect::<Vec<_>>());
        }
        figures.extend(figures_of(callers, &rounds));
    }
    Ok(figures)
}

/// The figures of some rounds: in each the run of TokenRequest, of the measured broker, and of its
/// replicas.
fn figures_of(callers: usize, rounds: &[Vec<Run>]) -> Vec<Figure> {
    let pairs = |other: usize, pick: fn(&Run) -> f64| -> Vec<(f64, f64)> {
        rounds.iter().map(|runs| (pick(&runs[1]), pick(&runs[other]))).collect()
    };
    let figure = |what: &str, unit, baseline: &str, pairs: &[(f64, f64)], threshold| {
        let name = format!("issuance, {callers} callers: {what}");
        Figure::of_pairs(name, unit, baseline, pairs, threshold)
    };
    let threshold = if callers == 16 { Threshold::AtLeast(0.6) } else { Threshold::None };
    let own_cpu: Vec<_> =
        rounds.iter().map(|runs| (runs[1].cpu_ms[0], runs[1].cpu_ms[1])).collect();
    let direct = "TokenRequest directly";
    let all_cpu: fn(&Run) -> f64 = |run| run.cpu_ms.iter().sum();
    let mut figures = vec![
        figure("tokens a second", "1/s", direct, &pairs(0, |run| run.rate), threshold),
        figure(
            "CPU of broker, API server and etcd for a token",
            "ms",
            direct,
            &pairs(0, all_cpu),
            Threshold::None,
        ),
        figure(
            "CPU of the broker for a token, beside the API server's",
            "ms",
            "the API server's",
            &own_cpu,
            Threshold::None,
        ),
    ];
    for build in 2..rounds.first().map_or(0, Vec::len) {
        let name = format!("build {build}");
        figures.extend([
            figure("tokens a second", "1/s", &name, &pairs(build, |run| run.rate), Threshold::None),
            figure(
                "CPU of the broker for a token",
                "ms",
                &name,
                &pairs(build, |run| run.cpu_ms[0]),
                Threshold::None,
            ),
        ]);
    }
    figures.into_iter().flatten().collect()
}
