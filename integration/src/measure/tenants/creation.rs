//! Creation of a namespace through the gateway, compared with raw requests for the same objects.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use http::Method;
use serde_json::Value;

use super::objects::{NAMESPACES, config_maps, plain_namespace, role_bindings};
use super::plan::{Measured, TenantPlan};
use super::population::{CREATED, namespace_of};
use super::testbed::TenantTestbed;
use crate::measure::figure::{Figure, Spread, Threshold, Timing};
use crate::measure::raw::{RawApi, ms};

/// A tenant without a Tenant, so that the broker does not work on its namespaces. Its name is as
/// long as that of the other one.
const RAW: &str = "rawmade";
/// Number of the objects of a namespace.
const OBJECTS: usize = 6;
/// Interval at which the raw requests read the status of a quota.
const QUOTA_INTERVAL: Duration = Duration::from_millis(2);

/// Measures creations, each on a broker that is at rest.
///
/// # Errors
/// A request fails.
pub(super) async fn measure(testbed: &TenantTestbed, plan: TenantPlan) -> Result<Measured> {
    let creator = testbed.member("creator", &[]).await?;
    testbed.join(&creator, CREATED).await?;
    let gateway = testbed.gateway(&creator)?;
    let first = namespace_of(CREATED, 0);
    create(&gateway, &first).await?;
    let template = Template::read(testbed.admin(), &first).await?;
    let (mut raw, mut waiting, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    // The first pair finds connections and caches cold.
    for number in 0..=plan.requests {
        testbed.until_quiet().await?;
        let namespace = namespace_of(CREATED, number + 1);
        let created = create(&gateway, &namespace).await?;
        let used = gateway.send(Method::GET, &config_maps(&namespace), None).await?;
        testbed.until_quiet().await?;
        let at_once = template.create(testbed.broker(), &format!("a{number}"), false).await?;
        let enforced = template.create(testbed.broker(), &format!("b{number}"), true).await?;
        if number > 0 {
            raw.push((created, at_once));
            waiting.push((created, enforced));
            refused.push(if used.status.is_success() { 0.0 } else { 1.0 });
        }
    }
    let name = "namespace through the gateway, to its 201 with all rights";
    let figures = [
        (raw, "six raw requests", Threshold::AtMost(1.0)),
        (waiting, "the same, which wait for the quota", Threshold::None),
    ];
    let figures = figures.into_iter().filter_map(|(pairs, baseline, threshold)| {
        Figure::of_pairs(name, "ms", baseline, &pairs, threshold)
    });
    let timing = Spread::of(refused).map(|value| Timing {
        name: "first request after the 201, refused (1) or not (0)".to_owned(),
        unit: "",
        value,
    });
    Ok(Measured { figures: figures.collect(), timings: timing.into_iter().collect() })
}

/// Creates a namespace, and returns the time until the response in ms.
async fn create(gateway: &RawApi, name: &str) -> Result<f64> {
    let answer = gateway.succeed(Method::POST, NAMESPACES, Some(&plain_namespace(name))).await?;
    Ok(ms(answer.took))
}

/// The objects of a namespace as the broker made them, in the order of their creation.
struct Template(Vec<(String, String)>);

impl Template {
    /// Reads the objects of a namespace.
    async fn read(admin: &RawApi, namespace: &str) -> Result<Self> {
        let mut objects =
            vec![(NAMESPACES.to_owned(), admin.get(&format!("{NAMESPACES}/{namespace}")).await?)];
        for path in [
            format!("{NAMESPACES}/{namespace}/resourcequotas"),
            format!("{NAMESPACES}/{namespace}/limitranges"),
            role_bindings(namespace),
        ] {
            let list = admin.get(&path).await?;
            // Items of a list have no type of their own, and a request with its path needs none.
            let items = list["items"].as_array().context("there is no list")?;
            objects.extend(items.iter().map(|item| (path.clone(), item.clone())));
        }
        ensure!(objects.len() == OBJECTS, "{namespace} has {} objects", objects.len());
        let template = objects.into_iter().map(|(path, mut object)| {
            strip(&mut object);
            let text = object.to_string();
            (path.replace(namespace, "{namespace}"), text.replace(namespace, "{namespace}"))
        });
        Ok(Self(template.map(|(path, text)| (path, text.replace(CREATED, RAW))).collect()))
    }

    /// Creates the objects one by one, and returns the time in ms.
    async fn create(&self, broker: &RawApi, name: &str, waits_for_quota: bool) -> Result<f64> {
        let namespace = format!("{RAW}-{name}");
        let mut requests = Vec::with_capacity(self.0.len());
        for (path, text) in &self.0 {
            let text = text.replace("{namespace}", &namespace);
            let object: Value = serde_json::from_str(&text).context("make an object")?;
            requests.push((path.replace("{namespace}", &namespace), object));
        }
        let began = Instant::now();
        for (path, object) in &requests {
            broker.succeed(Method::POST, path, Some(object)).await?;
            if waits_for_quota && path.ends_with("/resourcequotas") {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                let path = format!("{path}/{name}");
                while broker.get(&path).await?["status"]["hard"].is_null() {
                    tokio::time::sleep(QUOTA_INTERVAL).await;
                }
            }
        }
        Ok(ms(began.elapsed()))
    }
}

/// Leaves of an object what a client writes.
fn strip(object: &mut Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|field, _| matches!(field.as_str(), "name" | "namespace" | "labels"));
        if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
            // The API server sets it.
            labels.remove("kubernetes.io/metadata.name");
        }
    }
    if let Some(spec) = object["spec"].as_object_mut() {
        spec.remove("finalizers");
    }
}
