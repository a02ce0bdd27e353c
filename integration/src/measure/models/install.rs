//! Installations of a Llama Stack, compared with the calls to the API server that one consists of,
//! sent one after the other on one connection.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use http::{HeaderValue, Method, StatusCode};
use serde_json::{Value, json};

use super::ModelPlan;
use super::objects::{
    USUAL_SPEC_BYTES, distributions, inference_services, model, service, services,
};
use super::testbed::{MEMBERS, ModelTestbed};
use crate::measure::figure::{Figure, Threshold};
use crate::measure::gateway::caller::{Caller, CallerRequest};
use crate::measure::objects::config_maps;
use crate::measure::raw::ms;

/// The numbers of models of an installation.
const COUNTS: [usize; 2] = [1, 10];
const NAMESPACE: &str = "measure-install";
const DISTRIBUTION: &str = "lsd-genai-playground";
const CONFIG_MAP: &str = "llama-stack-config";
const METADATA_ONLY: HeaderValue =
    HeaderValue::from_static("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1");

/// Measures an installation with one model and one with ten.
///
/// # Errors
/// A request fails.
pub(super) async fn measure(testbed: &ModelTestbed, plan: ModelPlan) -> Result<Vec<Figure>> {
    testbed.create_namespace(NAMESPACE).await?;
    let most = COUNTS.into_iter().max().unwrap_or_default();
    let models: Vec<_> =
        (0..most).map(|number| model(NAMESPACE, number, 1, USUAL_SPEC_BYTES)).collect();
    let names: Vec<String> = models
        .iter()
        .filter_map(|model| Some(model["metadata"]["name"].as_str()?.to_owned()))
        .collect();
    let uids = testbed.create_models(NAMESPACE, &inference_services(NAMESPACE), models).await?;
    let owned = names.iter().zip(&uids).map(|(name, uid)| service(name, uid));
    let owned = owned.map(|service| (services(NAMESPACE), service));
    testbed.admin().create_all(owned, 1).await?;
    let mut figures = Vec::new();
    for count in COUNTS {
        figures.extend(of_models(testbed, plan, &names[..count]).await?);
    }
    Ok(figures)
}

async fn of_models(
    testbed: &ModelTestbed,
    plan: ModelPlan,
    names: &[String],
) -> Result<Option<Figure>> {
    let mut caller = Caller::connect(&testbed.services(MEMBERS[0])?, false).await?;
    let mut direct = Caller::connect(&testbed.direct(MEMBERS[0])?, false).await?;
    let models: Vec<_> = names.iter().map(|name| json!({"model_name": name})).collect();
    let path = format!("/lsd/install?namespace={NAMESPACE}");
    let install = CallerRequest::post(path, &json!({ "models": models }));
    caller.succeed(&install).await?;
    let calls = DirectCalls::of_installed(testbed, names).await?;
    uninstall(testbed).await?;
    let mut pairs = Vec::with_capacity(plan.installations);
    // The first pair finds connections and caches cold.
    for number in 0..=plan.installations {
        let (mut value, mut baseline) = (0.0, 0.0);
        for is_value in [number % 2 == 0, number % 2 != 0] {
            // The lists are read once before, so that they do not wait for what was deleted.
            calls.read(&mut direct).await?;
            let began = Instant::now();
            if is_value {
                caller.succeed(&install).await?;
                value = ms(began.elapsed());
            } else {
                calls.send(&mut direct).await?;
                baseline = ms(began.elapsed());
            }
            uninstall(testbed).await?;
        }
        if number > 0 {
            pairs.push((value, baseline));
        }
    }
    let plural = if names.len() == 1 { "" } else { "s" };
    let name = format!("installation with {} model{plural}", names.len());
    let baseline = format!("its {} calls directly, in sequence", calls.reads.len() + 2);
    Ok(Figure::of_pairs(name, "ms", baseline, &pairs, Threshold::AtMost(1.0)))
}

/// Deletes the distribution and its ConfigMap.
async fn uninstall(testbed: &ModelTestbed) -> Result<()> {
    let paths = [
        format!("{}/{DISTRIBUTION}", distributions(NAMESPACE)),
        format!("{}/{CONFIG_MAP}", config_maps(NAMESPACE)),
    ];
    for path in paths {
        let answer = testbed.admin().send(Method::DELETE, &path, None).await?;
        let is_gone = answer.status.is_success() || answer.status == StatusCode::NOT_FOUND;
        ensure!(is_gone, "DELETE {path} was answered {}: {}", answer.status, answer.body);
    }
    Ok(())
}

/// The calls of an installation.
struct DirectCalls {
    reads: Vec<CallerRequest>,
    distribution: CallerRequest,
    /// Its owner has the uid of another distribution.
    config_map: Value,
}

impl DirectCalls {
    /// The calls of an installation with these models, which has just been made.
    async fn of_installed(testbed: &ModelTestbed, models: &[String]) -> Result<Self> {
        let created = async |path: &str| -> Result<Value> {
            let mut object = testbed.admin().get(path).await?;
            let metadata = object["metadata"].as_object_mut().context("there is no metadata")?;
            metadata.retain(|key, _| {
                matches!(key.as_str(), "name" | "labels" | "annotations" | "ownerReferences")
            });
            Ok(object)
        };
        let collection = distributions(NAMESPACE);
        let distribution = created(&format!("{collection}/{DISTRIBUTION}")).await?;
        let config_map = created(&format!("{}/{CONFIG_MAP}", config_maps(NAMESPACE))).await?;
        let path = format!("/{collection}?fieldValidation=Strict");
        Ok(Self {
            reads: reads(models),
            distribution: CallerRequest::post(path, &distribution),
            config_map,
        })
    }

    async fn read(&self, caller: &mut Caller) -> Result<()> {
        for read in &self.reads {
            caller.succeed(read).await?;
        }
        Ok(())
    }

    async fn send(&self, caller: &mut Caller) -> Result<()> {
        self.read(caller).await?;
        let created = caller.fetch(&self.distribution).await?;
        let created: Value = serde_json::from_slice(&created).context("read a distribution")?;
        let mut config_map = self.config_map.clone();
        config_map["metadata"]["ownerReferences"][0]["uid"] = created["metadata"]["uid"].clone();
        let path = format!("/{}?fieldValidation=Strict", config_maps(NAMESPACE));
        caller.succeed(&CallerRequest::post(path, &config_map)).await.map(drop)
    }
}

/// The reads of an installation with these models.
fn reads(models: &[String]) -> Vec<CallerRequest> {
    let review = |verb: &str| {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"namespace": NAMESPACE, "verb": verb,
                "group": "llamastack.io", "resource": "llamastackdistributions"}},
        });
        CallerRequest::post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review)
    };
    let list = |path: &str, query: &str| CallerRequest::get(format!("/{path}?limit=250{query}"));
    let labelled = "&labelSelector=opendatahub.io%2Fdashboard%3Dtrue";
    let mut reads =
        vec![review("list"), review("create"), list(&distributions(NAMESPACE), labelled)];
    for model in models {
        let object = format!("/{}/{model}", inference_services(NAMESPACE));
        let label = format!("&labelSelector=serving.kserve.io%2Finferenceservice%3D{model}");
        reads.extend([CallerRequest::get(object), list(&services(NAMESPACE), &label)]);
    }
    let core = |plural: &str| format!("api/v1/namespaces/{NAMESPACE}/{plural}");
    let tokens = "&fieldSelector=type%3Dkubernetes.io%2Fservice-account-token";
    let accounts = list(&core("serviceaccounts"), "").accept(METADATA_ONLY);
    reads.extend([accounts, list(&core("secrets"), tokens).accept(METADATA_ONLY)]);
    reads
}
