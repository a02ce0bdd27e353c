//! `cargo measure tenants`: tenants and their namespaces, each figure beside its baseline.
//!
//! All parts but one share a testbed with thousands of namespaces, whose creation takes most of the
//! time of a run. The parts that need it empty come first.

mod admission;
mod creation;
mod credential;
mod direct;
mod foreign;
mod memory;
mod namespace_watch;
mod objects;
mod plan;
mod population;
mod reads;
mod reconcile;
mod suspension;
mod testbed;
mod watches;

use std::fmt;

use anyhow::Result;

pub use plan::{Measured, TenantPlan};
pub use population::Size;
pub use testbed::{TenantTestbed, with_tenants};

use self::admission::Admission;
use crate::progress::print_message;

/// The parts of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum TenantPart {
    /// Creation of a namespace through the gateway
    Creation,
    /// Direct creation of a namespace, to the owner's first success
    Direct,
    /// Direct creation of a namespace under the policies, with one and with all Tenants
    Admission,
    /// Suspension of a tenant
    Suspension,
    /// Runs of the broker on a tenant with many namespaces
    Reconcile,
    /// The first credential of a new member
    Credential,
    /// The list of namespaces through the gateway
    List,
    /// A request through the gateway of a person with many tenants
    Get,
    /// Watches of namespaces through the gateway
    Watches,
    /// Memory of the broker
    Memory,
    /// CPU of the API server for writes elsewhere
    Foreign,
}

impl TenantPart {
    /// Those that use a populated testbed, in their order. The runs on the big tenant come last,
    /// because they load the API server.
    const POPULATED: [Self; 8] = [
        Self::Creation,
        Self::Direct,
        Self::Suspension,
        Self::Credential,
        Self::List,
        Self::Get,
        Self::Watches,
        Self::Reconcile,
    ];
}

impl fmt::Display for TenantPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Creation => "creation of namespaces through the gateway",
            Self::Direct => "direct creation of namespaces",
            Self::Admission => "creation of namespaces under the policies",
            Self::Suspension => "suspensions",
            Self::Reconcile => "runs on a tenant with many namespaces",
            Self::Credential => "first credentials",
            Self::List => "lists of namespaces",
            Self::Get => "requests of a person with many tenants",
            Self::Watches => "watches of namespaces",
            Self::Memory => "memory of the broker",
            Self::Foreign => "writes elsewhere",
        })
    }
}

/// Measures all parts, or one. The broker of the testbed is stopped afterwards, if the policies were
/// measured.
///
/// # Errors
/// A part does not start, or a request fails.
pub async fn measure(
    testbed: &TenantTestbed,
    only: Option<TenantPart>,
    plan: TenantPlan,
) -> Result<Measured> {
    let wanted = |part| only.is_none_or(|only| only == part);
    let mut measured = Measured::default();
    let mut idle = Vec::new();
    if wanted(TenantPart::Memory) {
        print_message(&format!("measure: {}, without tenants", TenantPart::Memory));
        idle = memory::of_restarts(testbed, plan).await?;
    }
    let mut admission = None;
    if wanted(TenantPart::Admission) {
        print_message(&format!("measure: {}, one Tenant", TenantPart::Admission));
        admission = Some(Admission::with_one_tenant(testbed, plan).await?);
    }
    if wanted(TenantPart::Memory) {
        testbed.populate().await?;
        print_message(&format!("measure: {}", TenantPart::Memory));
        let populated = memory::of_restarts(testbed, plan).await?;
        measured.add(memory::figure(testbed, idle, populated));
    }
    for part in TenantPart::POPULATED.into_iter().filter(|&part| wanted(part)) {
        testbed.populate().await?;
        print_message(&format!("measure: {part}"));
        measured.add(populated_part(testbed, part, plan).await?);
    }
    if let Some(admission) = admission {
        print_message(&format!("measure: {}, all Tenants", TenantPart::Admission));
        measured.add(admission.with_all_tenants(testbed, plan).await?);
    }
    if wanted(TenantPart::Foreign) {
        print_message(&format!("measure: {}", TenantPart::Foreign));
        let world = testbed.world();
        let program = world.binaries().tenant_broker();
        measured.add(foreign::measure(&program, world.folder(), plan).await?);
    }
    Ok(measured)
}

async fn populated_part(
    testbed: &TenantTestbed,
    part: TenantPart,
    plan: TenantPlan,
) -> Result<Measured> {
    match part {
        TenantPart::Creation => creation::measure(testbed, plan).await,
        TenantPart::Direct => direct::measure(testbed, plan).await,
        TenantPart::Suspension => suspension::measure(testbed, plan).await,
        TenantPart::Credential => credential::measure(testbed, plan).await,
        TenantPart::List => reads::list(testbed, plan).await,
        TenantPart::Get => reads::get(testbed, plan).await,
        TenantPart::Watches => watches::measure(testbed, plan).await,
        TenantPart::Reconcile => reconcile::measure(testbed, plan).await,
        TenantPart::Admission | TenantPart::Memory | TenantPart::Foreign => Ok(Measured::default()),
    }
}
