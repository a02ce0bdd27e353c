//! Creation of a namespace under the policies, compared with an administrator at an API server
//! without policies. The broker is stopped, so that it does not work on the namespaces.

use anyhow::{Context, Result};
use http::Method;

use super::objects::{NAMESPACES, plain_namespace};
use super::plan::{Measured, TenantPlan};
use super::population::{DEVELOPERS, DIRECT, DIRECTOR};
use super::testbed::TenantTestbed;
use crate::control_plane::{ControlPlane, ControlPlaneOptions};
use crate::measure::figure::{Figure, Threshold};
use crate::measure::raw::{RawApi, ms};

/// How much slower creations may be with all Tenants than with one: the noise of such a run.
const MAX_GROWTH: f64 = 1.15;

/// The measurement with one Tenant, which the one with all Tenants is compared with.
#[derive(Debug)]
pub(super) struct Admission {
    /// A control plane without policies.
    bare: ControlPlane,
    with_one: Vec<(f64, f64)>,
}

impl Admission {
    /// Measures with the one Tenant that a new testbed has.
    ///
    /// # Errors
    /// A part does not start, or a request fails.
    pub(super) async fn with_one_tenant(testbed: &TenantTestbed, plan: TenantPlan) -> Result<Self> {
        let folder = testbed.world().folder().join("bare-control-plane");
        let options = ControlPlaneOptions { folder: Some(folder), ..Default::default() };
        let mut admission =
            Self { bare: ControlPlane::start(options).await?, with_one: Vec::new() };
        let broker = testbed.world().broker();
        broker.stop().await?;
        admission.with_one = admission.pairs(testbed, "one", plan).await?;
        broker.start().await?;
        Ok(admission)
    }

    /// Measures with as many Tenants as the testbed can have. The broker stays stopped.
    ///
    /// # Errors
    /// A request fails.
    pub(super) async fn with_all_tenants(
        self,
        testbed: &TenantTestbed,
        plan: TenantPlan,
    ) -> Result<Measured> {
        testbed.world().broker().stop().await?;
        testbed.fill_with_tenants().await?;
        let with_all = self.pairs(testbed, "all", plan).await?;
        let tenants = testbed.size().most_tenants;
        let name = |tenants: usize| {
            let plural = if tenants == 1 { "" } else { "s" };
            format!("create namespace with the policies, {tenants} Tenant{plural}")
        };
        let baseline = "administrator, no policies";
        let ratio = |pairs: &[(f64, f64)]| -> Vec<f64> {
            pairs.iter().map(|(value, baseline)| value / baseline).collect()
        };
        let growth: Vec<_> = ratio(&with_all).into_iter().zip(ratio(&self.with_one)).collect();
        let threshold = Threshold::AtMost(1.5);
        let figures = [
            Figure::of_pairs(name(1), "ms", baseline, &self.with_one, threshold),
            Figure::of_pairs(name(tenants), "ms", baseline, &with_all, threshold),
            Figure::of_pairs(
                format!("ratio of the creations with {tenants} Tenants"),
                "",
                "ratio with 1 Tenant",
                &growth,
                Threshold::AtMost(MAX_GROWTH),
            ),
        ];
        Ok(Measured { figures: figures.into_iter().flatten().collect(), ..Measured::default() })
    }

    /// Creates namespaces in turn with the policies and without, and returns the times in ms.
    async fn pairs(
        &self,
        testbed: &TenantTestbed,
        name: &str,
        plan: TenantPlan,
    ) -> Result<Vec<(f64, f64)>> {
        let cluster = testbed.world().cluster();
        let director = cluster.authority().client(DIRECTOR, Some(DEVELOPERS))?;
        let owner = RawApi::direct(cluster, &director)?;
        let masters = self.bare.authority().client("measure-admin", Some("system:masters"))?;
        let administrator = RawApi::direct(&self.bare, &masters)?;
        let create = async |api: &RawApi, number: usize| -> Result<f64> {
            let object = plain_namespace(&format!("{DIRECT}-{name}-{number:04}"));
            let answer = api.succeed(Method::POST, NAMESPACES, Some(&object)).await;
            Ok(ms(answer.context("create a namespace")?.took))
        };
        let mut pairs = Vec::with_capacity(plan.cheap_requests);
        for number in 0..plan.cheap_requests + 5 {
            let pair = if number % 2 == 0 {
                let value = create(&owner, number).await?;
                (value, create(&administrator, number).await?)
            } else {
                let baseline = create(&administrator, number).await?;
                (create(&owner, number).await?, baseline)
            };
            // The first requests find connections and caches cold.
            if number >= 5 {
                pairs.push(pair);
            }
        }
        Ok(pairs)
    }
}
