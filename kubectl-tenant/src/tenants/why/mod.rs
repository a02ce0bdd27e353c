//! The command `why`: asks the API server whether the person may do something, and explains which
//! entry of the Tenant gives the right.

mod explanation;
mod reason;

use http::Method;
use serde_json::{Value, json};

use self::explanation::Explanation;
use super::{choose, membership};
use crate::{
    account::Account,
    broker::{Broker, json_body},
    cli::tenants::WhyArgs,
    error::Error,
    output, runtime,
    store::AccountFlags,
    world::World,
};

/// Path of a `SelfSubjectAccessReview` (API reference, authorization.k8s.io/v1).
const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// Runs `why`.
pub(crate) fn why(flags: &AccountFlags, options: &WhyArgs, world: &mut World) -> Result<(), Error> {
    let account = Account::open(flags, world)?;
    let broker = &account.broker;
    let explanation = runtime::block_on(async {
        let (namespace, tenant) = (&options.namespace, options.tenant.as_deref());
        let tenant = choose::tenant_of(broker, namespace, tenant).await?;
        let cluster = membership::of_tenant(broker, &tenant, world).await?.cluster;
        let status = review(broker, &cluster, options).await?;
        Ok::<_, Error>(Explanation::new(options, tenant, &status))
    })??;
    output::show(world, options.shown.output, &explanation, Explanation::text)
}

/// Sends a `SelfSubjectAccessReview` for the request, and returns its status.
async fn review(broker: &Broker, cluster: &str, options: &WhyArgs) -> Result<Value, Error> {
    let target = &options.target;
    let body = json_body(&json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {
            "namespace": options.namespace,
            "verb": options.verb,
            "group": target.group,
            "resource": target.resource,
            "subresource": options.subresource.as_deref().unwrap_or_default(),
            "name": target.name.as_deref().unwrap_or_default(),
        }},
    }))?;
    let response = broker.kubernetes(Method::POST, cluster, ACCESS_REVIEWS, Some(body)).await?;
    Ok(response.accepted()?["status"].take())
}
