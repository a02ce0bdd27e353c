//! The namespaces of a caller: a user with a Kubernetes token who has few of many, and a session.

use anyhow::{Result, ensure};
use serde_json::Value;

use super::ModelPlan;
use super::samples::{broker_cpu, compared, pairs};
use super::testbed::{ADMINISTRATOR, CREATORS, ModelTestbed, READER};
use crate::measure::figure::{Figure, Threshold};
use crate::measure::gateway::caller::{Caller, CallerRequest};
use crate::measure::gateway::route::Route;
use crate::measure::gateway::sample::Sample;
use crate::measure::objects::{NAMESPACES, plain_namespace, role_binding, role_bindings, user};

const ALL: usize = 500;
/// RoleBindings of each namespace.
const BINDINGS: usize = 3;
/// The numbers of the namespaces in which one of the RoleBindings is the reader's.
const READABLE: [usize; 3] = [7, 250, 499];

/// Measures both.
///
/// # Errors
/// A request fails.
pub(super) async fn measure(testbed: &ModelTestbed, plan: ModelPlan) -> Result<Vec<Figure>> {
    let mut figures = of_token(testbed, plan).await?;
    figures.extend(of_session(testbed, plan).await?);
    Ok(figures)
}

fn namespace(number: usize) -> String {
    format!("measure-of-many-{number:03}")
}

/// Creates all namespaces and their RoleBindings.
async fn populate(testbed: &ModelTestbed) -> Result<()> {
    let namespaces = (0..ALL).map(|number| (NAMESPACES.to_owned(), namespace(number)));
    let namespaces = namespaces.map(|(path, name)| (path, plain_namespace(&name)));
    testbed.admin().create_all(namespaces, CREATORS).await?;
    let bindings = (0..ALL).flat_map(|number| (0..BINDINGS).map(move |index| (number, index)));
    let bindings = bindings.map(|(number, index)| {
        let subject = if index == 0 && READABLE.contains(&number) {
            user("reader")
        } else {
            user(&format!("other-{number}-{index}"))
        };
        let (namespace, name) = (namespace(number), format!("binding-{index}"));
        (role_bindings(&namespace), role_binding(&namespace, &name, "admin", &subject))
    });
    testbed.admin().create_all(bindings, CREATORS).await?;
    for number in READABLE {
        let path = format!("{NAMESPACES}/{}", namespace(number));
        testbed.until_readable(READER, &path).await?;
    }
    Ok(())
}

async fn of_token(testbed: &ModelTestbed, plan: ModelPlan) -> Result<Vec<Figure>> {
    populate(testbed).await?;
    let name = format!("namespaces, a user with {} of {ALL}", READABLE.len());
    let baseline = "list of all, directly";
    let (services, direct) = (testbed.services(READER)?, testbed.direct(ADMINISTRATOR)?);
    let list = CallerRequest::get(format!("/{NAMESPACES}"));
    let pairs = samples(testbed, plan, (&services, READABLE.len()), (&direct, &list)).await?;
    let server = format!("{name}: CPU of the API server");
    let limit = Threshold::AtMost(4.0);
    let figures = [
        compared(&name, "ms", baseline, &pairs, |sample| sample.p50, limit),
        compared(server, "ms", baseline, &pairs, |sample| sample.server_cpu / 1e3, limit),
        broker_cpu(&name, &pairs, Threshold::None),
    ];
    Ok(figures.into_iter().flatten().collect())
}

async fn of_session(testbed: &ModelTestbed, plan: ModelPlan) -> Result<Vec<Figure>> {
    use secrecy::ExposeSecret as _;

    let person = testbed.world().person("measured").await?;
    let session = person.sign_in().await?.access_token;
    let api = testbed.world().anonymous_api()?.with_token(session.clone());
    let (workspace, _) = api.init("basic").await?;
    let credential = api.credential(workspace.id).await?;
    let services = testbed.services(session.expose_secret())?;
    let direct = testbed.direct(&credential.token)?;
    let get = CallerRequest::get(format!("/{NAMESPACES}/{}", workspace.namespace));
    let pairs = samples(testbed, plan, (&services, 1), (&direct, &get)).await?;
    let (name, baseline) = ("namespaces, a session with one workspace", "GET of it directly");
    let figures = [
        compared(name, "ms", baseline, &pairs, |sample| sample.p50, Threshold::AtMost(1.5)),
        broker_cpu(name, &pairs, Threshold::None),
    ];
    Ok(figures.into_iter().flatten().collect())
}

/// Samples of the namespaces of a caller, who has so many, and of another request.
async fn samples(
    testbed: &ModelTestbed,
    plan: ModelPlan,
    (services, count): (&Route, usize),
    (direct, request): (&Route, &CallerRequest),
) -> Result<Vec<(Sample, Sample)>> {
    let mut caller = Caller::connect(services, false).await?;
    let mut baseline = Caller::connect(direct, false).await?;
    let namespaces = CallerRequest::get("/namespaces");
    let shown: Value = serde_json::from_slice(&caller.fetch(&namespaces).await?)?;
    let shown = shown["data"].as_array().map_or(0, Vec::len);
    ensure!(shown == count, "{shown} namespaces are shown instead of {count}");
    let value = async || caller.succeed(&namespaces).await.map(drop);
    pairs(testbed, plan, value, async || baseline.succeed(request).await.map(drop)).await
}
