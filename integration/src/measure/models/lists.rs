//! The models of a namespace, compared with the lists of both kinds side by side.

use anyhow::{Result, ensure};
use serde_json::Value;

use super::ModelPlan;
use super::objects::{
    LABELLED, USUAL_SPEC_BYTES, inference_services, llm_inference_services, llm_model, model,
    runtime, serving_runtimes,
};
use super::samples::{broker_cpu, compared, pairs};
use super::testbed::{CREATORS, MEMBERS, ModelTestbed};
use crate::measure::figure::{Figure, Threshold};
use crate::measure::gateway::caller::{Caller, CallerRequest};

/// Models of each kind.
const MODELS: usize = 50;
const RUNTIMES: usize = 10;

/// Measures a namespace with many models and one with none.
///
/// # Errors
/// A request fails.
pub(super) async fn measure(testbed: &ModelTestbed, plan: ModelPlan) -> Result<Vec<Figure>> {
    let (many, none) = ("measure-models", "measure-no-models");
    for namespace in [many, none] {
        testbed.create_namespace(namespace).await?;
    }
    let path = serving_runtimes(many);
    let runtimes = (0..RUNTIMES).map(|number| (path.clone(), runtime(many, number)));
    testbed.admin().create_all(runtimes, CREATORS).await?;
    let models = (0..MODELS).map(|number| model(many, number, RUNTIMES, USUAL_SPEC_BYTES));
    testbed.create_models(many, &inference_services(many), models.collect()).await?;
    let models = (0..MODELS).map(|number| llm_model(many, number, USUAL_SPEC_BYTES));
    testbed.create_models(many, &llm_inference_services(many), models.collect()).await?;

    let name = format!("models, {MODELS} + {MODELS}, {RUNTIMES} runtimes, with the review");
    let mut figures = of_namespace(testbed, plan, (&name, many, 2 * MODELS), 1.5).await?;
    figures.extend(of_namespace(testbed, plan, ("models, none", none, 0), 2.2).await?);
    Ok(figures)
}

async fn of_namespace(
    testbed: &ModelTestbed,
    plan: ModelPlan,
    (name, namespace, count): (&str, &str, usize),
    limit: f64,
) -> Result<Vec<Figure>> {
    let (services, direct) = (testbed.services(MEMBERS[0])?, testbed.direct(MEMBERS[0])?);
    let mut caller = Caller::connect(&services, false).await?;
    let mut one = Caller::connect(&direct, false).await?;
    let mut other = Caller::connect(&direct, false).await?;
    let models = CallerRequest::get(format!("/aaa/models?namespace={namespace}"));
    let [first, second] = [inference_services(namespace), llm_inference_services(namespace)]
        .map(|path| CallerRequest::get(format!("/{path}{LABELLED}")));
    let shown: Value = serde_json::from_slice(&caller.fetch(&models).await?)?;
    let shown = shown["data"].as_array().map_or(0, Vec::len);
    ensure!(shown == count, "{shown} models are shown instead of {count}");
    let both = async || {
        tokio::try_join!(one.succeed(&first), other.succeed(&second))?;
        Ok(())
    };
    let value = async || caller.succeed(&models).await.map(drop);
    let pairs = pairs(testbed, plan, value, both).await?;
    let baseline = "both lists directly, side by side";
    let is_busy = if count > 0 { Threshold::AtMost(0.25) } else { Threshold::None };
    let server = format!("{name}: CPU of the API server");
    let figures = [
        compared(name, "ms", baseline, &pairs, |sample| sample.p50, Threshold::AtMost(limit)),
        broker_cpu(name, &pairs, is_busy),
        compared(server, "ms", baseline, &pairs, |sample| sample.server_cpu / 1e3, Threshold::None),
    ];
    Ok(figures.into_iter().flatten().collect())
}
