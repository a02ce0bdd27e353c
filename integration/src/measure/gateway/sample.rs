//! The result of one sample of one route.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::measure::process_time::cpu_ms;

/// The result of one sample of one route.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// Requests a second.
    pub(crate) rate: f64,
    /// Median latency in milliseconds.
    pub(crate) p50: f64,
    /// 99th percentile of the latency in milliseconds.
    pub(crate) p99: f64,
    /// CPU time of the proxy for one request, in microseconds; 0 without a proxy.
    pub(crate) proxy_cpu: f64,
    /// CPU time of the API server for one request, in microseconds.
    pub(crate) server_cpu: f64,
}

/// A sample that is running.
pub(crate) struct RunningSample {
    proxy: Vec<u32>,
    server: u32,
    proxy_before: f64,
    server_before: f64,
    began: Instant,
}

impl RunningSample {
    /// Starts the clocks of the proxy and of the API server, once all connections are open.
    pub(crate) fn start(proxy: &[u32], server: u32) -> Result<Self> {
        let proxy = proxy.to_vec();
        Ok(Self {
            proxy_before: all_cpu_ms(&proxy)?,
            server_before: cpu_ms(server)?,
            proxy,
            server,
            began: Instant::now(),
        })
    }

    /// Ends the sample with the latency of each request.
    pub(crate) fn end(self, mut took: Vec<Duration>) -> Result<Sample> {
        let elapsed = self.began.elapsed().as_secs_f64();
        let proxy = all_cpu_ms(&self.proxy)? - self.proxy_before;
        let server = cpu_ms(self.server)? - self.server_before;
        took.sort_unstable();
        let count = f64::from(u32::try_from(took.len()).unwrap_or(u32::MAX)).max(1.0);
        let at = |percent: usize| {
            let index = took.len() * percent / 100;
            took.get(index).or(took.last()).map_or(0.0, |took| took.as_secs_f64() * 1e3)
        };
        Ok(Sample {
            rate: count / elapsed,
            p50: at(50),
            p99: at(99),
            proxy_cpu: proxy * 1e3 / count,
            server_cpu: server * 1e3 / count,
        })
    }
}

fn all_cpu_ms(processes: &[u32]) -> Result<f64> {
    processes.iter().map(|&pid| cpu_ms(pid)).sum()
}
