//! The command `models`: lists the models of a namespace.

use tenant_shared::AAModel;

use super::{
    arguments::{InNamespace, Models as Options, ModelsAction},
    distribution,
    place::Place,
};
use crate::{error::Error, output, runtime, store::AccountFlags, world::World};

/// Runs `models`.
pub(crate) fn models(
    flags: &AccountFlags,
    options: &Options,
    world: &mut World,
) -> Result<(), Error> {
    match &options.action {
        None => list(flags, &options.listed, world),
        Some(ModelsAction::List(listed)) => list(flags, listed, world),
        Some(ModelsAction::Install(options)) => distribution::install(flags, options, world),
        Some(ModelsAction::Status(options)) => distribution::status(flags, options, world),
        Some(ModelsAction::Delete(options)) => distribution::delete(flags, options, world),
    }
}

fn list(flags: &AccountFlags, options: &InNamespace, world: &mut World) -> Result<(), Error> {
    let Place { broker, namespace } = Place::open(flags, options, world)?;
    let found = runtime::block_on(broker.models(&namespace))??;
    output::show(world, options.shown.output, &found, |it| table(&it.data))?;
    if found.data.is_empty() {
        world.say(format!("no model in {namespace} has the label opendatahub.io/genai-asset=true"));
    }
    Ok(())
}

fn table(models: &[AAModel]) -> String {
    let rows: Vec<[String; 5]> = models
        .iter()
        .map(|it| {
            [
                it.model_name.clone(),
                it.display_name.clone(),
                it.serving_runtime.clone(),
                it.status.as_str().to_owned(),
                endpoint(it),
            ]
        })
        .collect();
    output::columns(["NAME", "DISPLAY NAME", "RUNTIME", "STATUS", "ENDPOINT"], &rows)
}

/// The first URL of a model: the one inside of the cluster, if it has one.
fn endpoint(model: &AAModel) -> String {
    let first = model.endpoints.first().map_or("", String::as_str);
    first.split_once(": ").map_or(first, |(_, url)| url).to_owned()
}

#[cfg(test)]
mod tests {
    use tenant_shared::{AAModelStatus, SaToken};

    use super::*;

    fn model(name: &str, status: AAModelStatus, endpoints: &[&str]) -> AAModel {
        AAModel {
            model_name: name.to_owned(),
            model_id: name.to_owned(),
            serving_runtime: "vLLM".to_owned(),
            api_protocol: String::new(),
            version: String::new(),
            description: String::new(),
            usecase: String::new(),
            display_name: format!("The {name}"),
            status,
            endpoints: endpoints.iter().map(|it| (*it).to_owned()).collect(),
            sa_token: SaToken::default(),
        }
    }

    #[test]
    fn the_endpoint_is_the_first_url() {
        let models = [
            model("a", AAModelStatus::Running, &["internal: http://a.ns", "external: https://a"]),
            model("b", AAModelStatus::Stop, &[]),
            model("c", AAModelStatus::Stop, &["http://c"]),
        ];
        insta::assert_snapshot!(table(&models), @r"
        NAME   DISPLAY NAME   RUNTIME   STATUS    ENDPOINT
        a      The a          vLLM      Running   http://a.ns
        b      The b          vLLM      Stop
        c      The c          vLLM      Stop      http://c
        ");
    }
}
