//! Load on an API server, and its CPU time for each request.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use http::Method;
use reqwest::Client;
use serde_json::Value;

use crate::measure::process_time::cpu_ms;

/// Number of concurrent callers, each on a kept connection.
const CALLERS: usize = 4;

/// One kind of request that is repeated.
#[derive(Clone, Debug)]
pub(super) struct Load {
    pub(super) client: Client,
    pub(super) method: Method,
    /// URL of the request; `{caller}` is replaced by the caller's name.
    pub(super) url: String,
    /// Body of the request, by the caller's name and the number of its request.
    pub(super) body: fn(&str, u64) -> Value,
    /// Whether the created object is deleted again; both requests count as one.
    pub(super) deletes: bool,
}

impl Load {
    /// Returns the names of the callers.
    pub(super) fn callers() -> impl Iterator<Item = String> {
        (0..CALLERS).map(|number| format!("caller-{number}"))
    }

    /// Sends requests for this time, and returns the CPU time of this process for one request, in
    /// ms.
    pub(super) async fn run(&self, pid: u32, length: Duration) -> Result<f64> {
        let before = cpu_ms(pid)?;
        let end = Instant::now() + length;
        let callers: Vec<_> = Self::callers()
            .map(|caller| {
                let load = self.clone();
                tokio::spawn(async move {
                    let mut count = 0;
                    while Instant::now() < end {
                        load.send(&caller, count).await?;
                        count += 1;
                    }
                    anyhow::Ok(count)
                })
            })
            .collect();
        let mut count = 0;
        for caller in callers {
            count += caller.await.context("a caller panicked")??;
        }
        let count = f64::from(u32::try_from(count).context("count the requests")?);
        Ok((cpu_ms(pid)? - before) / count)
    }

    async fn send(&self, caller: &str, count: u64) -> Result<()> {
        let url = self.url.replace("{caller}", caller);
        let request = self.client.request(self.method.clone(), &url);
        let answer = request.json(&(self.body)(caller, count)).send().await?;
        let status = answer.status();
        let body = answer.text().await.context("read the answer")?;
        if !status.is_success() {
            bail!("{url} answered {status}: {}", body.chars().take(300).collect::<String>());
        }
        if self.deletes {
            let created: Value = serde_json::from_str(&body).context("read the created object")?;
            let name = created["metadata"]["name"].as_str().context("the object has no name")?;
            let deletion = self.client.delete(format!("{url}/{name}")).send().await?;
            deletion.error_for_status().with_context(|| format!("delete {name}"))?.bytes().await?;
        }
        Ok(())
    }
}
