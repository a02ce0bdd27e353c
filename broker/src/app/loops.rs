//! Tasks that run until the broker stops. If one ends by itself, the broker stops with an error,
//! because it would otherwise go on without part of its work and nobody would notice.

use std::collections::HashMap;

use tokio::task::{Id, JoinError, JoinSet};

/// A background task ended, although nothing stopped it.
#[derive(Debug, thiserror::Error)]
#[error("the background task `{name}` ended; start the broker again and report the panic")]
pub(super) struct LoopEnded {
    name: &'static str,
    #[source]
    panic: Option<JoinError>,
}

/// The running tasks. They are aborted when the value is dropped.
#[derive(Debug, Default)]
pub(super) struct Loops {
    tasks: JoinSet<()>,
    names: HashMap<Id, &'static str>,
}

impl Loops {
    /// Starts a task that runs until it is aborted.
    pub(super) fn spawn(
        &mut self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let id = self.tasks.spawn(task).id();
        self.names.insert(id, name);
    }

    /// Waits until one of the tasks ends by itself, which only a panic causes.
    pub(super) async fn ended(&mut self) -> LoopEnded {
        let (id, panic) = match self.tasks.join_next_with_id().await {
            Some(Ok((id, ()))) => (id, None),
            Some(Err(error)) => (error.id(), Some(error)),
            None => std::future::pending().await,
        };
        LoopEnded { name: self.names.get(&id).copied().unwrap_or_default(), panic }
    }

    /// Aborts the tasks and waits for their end.
    pub(super) async fn shutdown(&mut self) {
        self.tasks.shutdown().await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::base::error_chain;

    /// Time limit of every step that waits for nobody.
    const STEP_TIMEOUT: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn a_task_that_panics_is_reported_with_its_name() {
        let mut loops = Loops::default();
        loops.spawn("sweep", std::future::pending());
        let quiet = tokio::time::timeout(Duration::from_millis(50), loops.ended()).await;
        assert!(quiet.is_err(), "it runs");
        loops.spawn("drift detection", async { panic!("a defect") });
        let ended = tokio::time::timeout(STEP_TIMEOUT, loops.ended()).await;
        let error = error_chain(&ended.expect("nobody notices"));
        assert!(error.contains("`drift detection`") && error.contains("a defect"), "{error}");
    }

    #[tokio::test]
    async fn a_task_that_returns_is_reported_too() {
        let mut loops = Loops::default();
        loops.spawn("ledger", async {});
        let ended = tokio::time::timeout(STEP_TIMEOUT, loops.ended()).await;
        let error = error_chain(&ended.expect("nobody notices"));
        assert!(error.contains("`ledger`"), "{error}");
    }
}
