//! What one turn of one way showed.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::place::Place;
use super::way::Way;
use crate::measure::process_time::cpu_ms;

/// One turn of one way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    /// Requests a second.
    pub(super) rate: f64,
    /// Half of the requests took at most so many milliseconds.
    pub(super) p50: f64,
    /// 99 of 100 took at most so many.
    pub(super) p99: f64,
    /// CPU time of the proxy for one request, in microseconds; 0 where there is none.
    pub(super) proxy_cpu: f64,
    /// The same of the API server.
    pub(super) server_cpu: f64,
}

/// A turn under way.
pub(super) struct Started {
    proxy: Vec<u32>,
    server: u32,
    proxy_before: f64,
    server_before: f64,
    began: Instant,
}

impl Started {
    /// Begins, once all connections are open.
    pub(super) fn now(place: &Place, way: &Way) -> Result<Self> {
        let (proxy, server) = (way.processes.clone(), place.api_server());
        Ok(Self {
            proxy_before: all_cpu_ms(&proxy)?,
            server_before: cpu_ms(server)?,
            proxy,
            server,
            began: Instant::now(),
        })
    }

    /// Ends with what each request took.
    pub(super) fn end(self, mut took: Vec<Duration>) -> Result<Turn> {
        let elapsed = self.began.elapsed().as_secs_f64();
        let proxy = all_cpu_ms(&self.proxy)? - self.proxy_before;
        let server = cpu_ms(self.server)? - self.server_before;
        took.sort_unstable();
        let count = f64::from(u32::try_from(took.len()).unwrap_or(u32::MAX)).max(1.0);
        let at = |percent: usize| {
            let place = took.len() * percent / 100;
            took.get(place).or(took.last()).map_or(0.0, |took| took.as_secs_f64() * 1e3)
        };
        Ok(Turn {
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
