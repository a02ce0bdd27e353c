//! The kinds, rights and sample model of `--models`.

use anyhow::{Context, Result};
use integration::api::Api;
use integration::model_kinds;
use integration::oidc::Issuer;
use integration::world::World;
use serde_json::json;

use crate::people::Account;

/// Name of the model.
pub(crate) const NAME: &str = "sample";

/// Installs the ClusterRoles of `tenant-broker install --model-services`, and the kinds.
pub(crate) async fn install(world: &World) -> Result<()> {
    let admin = world.cluster().admin_kubeconfig().display().to_string();
    let args = ["install", "--apply", "--model-services", "--kubeconfig", admin.as_str()];
    let applied = world.broker().run(&args).await?.success();
    applied.context("give people the rights of model services with tenant-broker install")?;
    model_kinds::install_definitions(world, &definitions()).await
}

/// Returns the definitions of the kinds without the ClusterRoles of tests, which grant the same as
/// those of `install`.
fn definitions() -> String {
    let documents = model_kinds::DEFINITIONS.split("---\n");
    let kept = documents.filter(|document| !document.contains("kind: ClusterRole\n"));
    kept.collect::<Vec<_>>().join("---\n")
}

/// Creates the workspace of this person and a model in it, with the status that KServe would write.
/// No program serves the model.
pub(crate) async fn create(world: &World, owner: &Account) -> Result<()> {
    let namespace = namespace(world, owner).await.context("create a workspace")?;
    let mut model = model_kinds::inference_service(&namespace, NAME);
    model["metadata"]["annotations"] = json!({
        "openshift.io/display-name": "Sample",
        "opendatahub.io/genai-use-case": "a model to try the commands with",
    });
    let url = format!("http://{NAME}.{namespace}.svc.cluster.local");
    let status = json!({
        "url": url,
        "address": {"url": url},
        "conditions": [{"type": "Ready", "status": "True"}],
    });
    model_kinds::apply_with_status(&world.admin_kubectl()?, &model, &status).await
}

/// Returns the namespace of the person's workspace, which is created if there is none.
async fn namespace(world: &World, owner: &Account) -> Result<String> {
    let url = world.broker().public_url()?;
    let authority = world.broker_ca_file().map(|_| world.cluster().authority().certificate());
    let issuer = Issuer::discover(&url, authority).await?;
    let session = issuer.sign_in(&owner.email, &owner.password).await?;
    let api = Api::anonymous(&url, authority)?.with_token(session.access_token);
    let (workspace, _) = api.init("basic").await?;
    // The person's list of sessions has their own sign-ins alone.
    issuer.revoke(&session.refresh_token).await?;
    Ok(workspace.namespace)
}
