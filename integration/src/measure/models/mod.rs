//! `cargo measure models`: model services beside the calls to the API server that a request makes, or
//! beside the fewest calls that could answer it. TLS is on both sides.

mod install;
mod lists;
mod memory;
mod namespaces;
mod objects;
mod samples;
mod testbed;
mod user;

use std::fmt;
use std::time::Duration;

use anyhow::Result;

pub use testbed::{ModelTestbed, with_model_services};

use super::figure::Figure;

/// The parts of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ModelPart {
    /// The caller's own name
    User,
    /// The models of a namespace
    Lists,
    /// The namespaces of a caller
    Namespaces,
    /// Installation of a Llama Stack
    Install,
    /// Memory of the broker
    Memory,
}

impl ModelPart {
    /// All parts; memory comes last because it restarts the broker.
    pub const ALL: [Self; 5] =
        [Self::User, Self::Lists, Self::Namespaces, Self::Install, Self::Memory];
}

impl fmt::Display for ModelPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::User => "names of callers",
            Self::Lists => "lists of models",
            Self::Namespaces => "namespaces of callers",
            Self::Install => "installations of a Llama Stack",
            Self::Memory => "memory of the broker",
        })
    }
}

/// The extent of the measurement.
#[derive(Clone, Copy, Debug)]
pub struct ModelPlan {
    /// Samples of each figure and of its baseline.
    pub rounds: usize,
    /// Length of one sample.
    pub length: Duration,
    /// Pairs of installations.
    pub installations: usize,
    /// Starts of the broker with and without model services, and of bursts of large lists.
    pub restarts: usize,
}

/// Measures one part.
///
/// # Errors
/// The part does not start, or a request fails.
pub async fn measure(
    testbed: &ModelTestbed,
    part: ModelPart,
    plan: ModelPlan,
) -> Result<Vec<Figure>> {
    match part {
        ModelPart::User => user::measure(testbed, plan).await,
        ModelPart::Lists => lists::measure(testbed, plan).await,
        ModelPart::Namespaces => namespaces::measure(testbed, plan).await,
        ModelPart::Install => install::measure(testbed, plan).await,
        ModelPart::Memory => memory::measure(testbed, plan).await,
    }
}
