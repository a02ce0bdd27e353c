//! The caller's own name: one call to the API server, compared with that call itself.

use anyhow::Result;
use serde_json::json;

use super::ModelPlan;
use super::samples::{broker_cpu, compared};
use super::testbed::{MEMBERS, ModelTestbed};
use crate::measure::alternation::alternate;
use crate::measure::figure::{Figure, Threshold};
use crate::measure::gateway::caller::CallerRequest;
use crate::measure::gateway::requests::{self, RequestSpec};

/// The numbers of concurrent connections.
const CONNECTIONS: [usize; 2] = [1, 16];
const FLOOR: &str = "SelfSubjectReview directly";

/// Measures `GET /user` with a Kubernetes token.
///
/// # Errors
/// A request fails.
pub(super) async fn measure(testbed: &ModelTestbed, plan: ModelPlan) -> Result<Vec<Figure>> {
    let (services, direct) = (testbed.services(MEMBERS[0])?, testbed.direct(MEMBERS[0])?);
    let user = RequestSpec::new("GET /user", CallerRequest::get("/user"), 20);
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let review = RequestSpec::new("SelfSubjectReview", CallerRequest::post(path, &review), 100);
    let mut figures = Vec::new();
    for connections in CONNECTIONS {
        let (server, length) = (testbed.server(), plan.length);
        let value = || requests::sample(server, &services, &user, connections, length);
        let baseline = || requests::sample(server, &direct, &review, connections, length);
        let pairs = alternate(plan.rounds, value, baseline).await?;
        let plural = if connections == 1 { "" } else { "s" };
        let name = format!("GET /user, {connections} connection{plural}");
        let when = |is_so: bool, threshold| if is_so { threshold } else { Threshold::None };
        let alone = when(connections == 1, Threshold::AddedAtMost(0.25));
        let busy = |threshold| when(connections > 1, threshold);
        let rate = busy(Threshold::AtLeast(0.65));
        figures.extend(compared(format!("{name}: p50"), "ms", FLOOR, &pairs, |t| t.p50, alone));
        figures.extend(compared(
            format!("{name}: a second"),
            "1/s",
            FLOOR,
            &pairs,
            |sample| sample.rate,
            rate,
        ));
        figures.extend(broker_cpu(&name, &pairs, busy(Threshold::ValueAtMost(0.2))));
    }
    Ok(figures)
}
