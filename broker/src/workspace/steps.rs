//! The steps of a piece of work in the cluster, as they are told to whoever asked for it.

use tenant_shared::{Step, StepResult};

/// The steps of one run, with how long each took.
#[derive(Debug, Default)]
pub(crate) struct Steps(Vec<Step>);

impl Steps {
    /// Runs a step and notes how it ended.
    pub(crate) async fn run<T, E>(
        &mut self,
        name: &str,
        step: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let began = std::time::Instant::now();
        let result = step.await;
        self.0.push(Step {
            step: name.to_owned(),
            result: if result.is_ok() { StepResult::Done } else { StepResult::Open },
            duration_ms: (began.elapsed().as_secs_f64() * 1e6).round() / 1e3,
        });
        result
    }

    /// Adds the steps that were not reached, as open.
    pub(crate) fn open(&mut self, names: &[&str]) {
        for name in names {
            if self.0.iter().all(|step| step.step != *name) {
                self.0.push(Step {
                    step: (*name).to_owned(),
                    result: StepResult::Open,
                    duration_ms: 0.0,
                });
            }
        }
    }

    /// Takes a step out that another way has made needless.
    pub(crate) fn forget(&mut self, name: &str) {
        self.0.retain(|step| step.step != name);
    }

    /// As the API shows them.
    pub(crate) fn into_wire(self) -> Vec<Step> {
        self.0
    }
}
