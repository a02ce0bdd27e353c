//! Issuance through the broker compared with TokenRequest directly: the same TLS client and the
//! same number of connections, in turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use reqwest::{Client, RequestBuilder};
use secrecy::ExposeSecret;

use super::figure::{Figure, Promise};
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

/// Compares issuance through the broker with TokenRequest directly, with 1, 4 and 16 callers, in
/// turn. The same client requests both sides over TLS, with one kept connection for each caller.
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
    let through = TokenEndpoint {
        client: http_client::builder(Some(authority))?.http1_only().build()?,
        url: format!(
            "{}api/v1/workspaces/{}/credentials",
            world.broker().public_url()?,
            workspace.id
        ),
        body: None,
        bearer: Some(session.access_token.expose_secret().to_owned()),
    };
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
    let watched = [
        world.broker().pid().context("the broker has stopped")?,
        world.cluster().api_server_pid(),
        world.cluster().etcd_pid(),
    ];
    let mut figures = Vec::new();
    for callers in [1, 4, 16] {
        let mut pairs = Vec::with_capacity(plan.rounds);
        for round in 0..plan.rounds {
            pairs.push(if round % 2 == 0 {
                let through = run(&through, callers, plan.length, watched).await?;
                (through, run(&direct, callers, plan.length, watched).await?)
            } else {
                let floor = run(&direct, callers, plan.length, watched).await?;
                (run(&through, callers, plan.length, watched).await?, floor)
            });
        }
        let promise = if callers == 16 { Promise::AtLeast(0.6) } else { Promise::None };
        let of = |pick: fn(&Run) -> f64| -> Vec<(f64, f64)> {
            pairs.iter().map(|(through, direct)| (pick(through), pick(direct))).collect()
        };
        let name = |what: &str| format!("issuance, {callers} callers: {what}");
        figures.extend(Figure::of_pairs(
            name("tokens a second"),
            "1/s",
            "TokenRequest directly",
            &of(|run| run.rate),
            promise,
        ));
        figures.extend(Figure::of_pairs(
            name("CPU of broker, API server and etcd for a token"),
            "ms",
            "TokenRequest directly",
            &of(|run| run.cpu_ms.iter().sum()),
            Promise::None,
        ));
        figures.extend(Figure::of_pairs(
            name("CPU of the broker for a token, beside the API server's"),
            "ms",
            "the API server's",
            &pairs.iter().map(|(run, _)| (run.cpu_ms[0], run.cpu_ms[1])).collect::<Vec<_>>(),
            Promise::None,
        ));
    }
    Ok(figures)
}
