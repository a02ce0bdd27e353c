//! The command `models`: lists the models of a namespace.

use tenant_shared::AAModel;

use super::{distribution, target::CommandTarget};
use crate::{
    cli::models::{ListFormat, ListModels, Models as Options, ModelsAction},
    error::Error,
    output, runtime,
    store::AccountFlags,
    terminal,
    world::World,
};

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

fn list(flags: &AccountFlags, options: &ListModels, world: &mut World) -> Result<(), Error> {
    let CommandTarget { broker, namespace } =
        CommandTarget::open(flags, &options.namespace, world)?;
    let broker = broker.for_list_of_models();
    let found = runtime::block_on(broker.models(&namespace))??;
    output::show(world, options.output.of_data(), &found, |it| match options.output {
        ListFormat::Name => names(&it.data),
        ListFormat::Wide => wide_table(&it.data),
        ListFormat::Table | ListFormat::Json | ListFormat::Yaml => table(&it.data),
    })?;
    if found.data.is_empty() {
        world.print_message(format!(
            "no model in {namespace} has the label opendatahub.io/genai-asset=true"
        ));
    }
    Ok(())
}

/// The names, one a line.
fn names(models: &[AAModel]) -> String {
    models.iter().map(|it| terminal::sanitize(&it.model_name) + "\n").collect()
}

fn table(models: &[AAModel]) -> String {
    let rows: Vec<[String; 5]> = models.iter().map(row).collect();
    output::columns(HEAD, &rows)
}

const HEAD: [&str; 5] = ["NAME", "DISPLAY NAME", "RUNTIME", "STATUS", "ENDPOINT"];

fn row(model: &AAModel) -> [String; 5] {
    [
        model.model_name.clone(),
        model.display_name.clone(),
        model.serving_runtime.clone(),
        model.status.as_str().to_owned(),
        endpoint(model),
    ]
}

/// The table with more columns.
fn wide_table(models: &[AAModel]) -> String {
    let [name, display_name, runtime, status, endpoint] = HEAD;
    let head = [
        name,
        display_name,
        runtime,
        status,
        endpoint,
        "EXTERNAL ENDPOINT",
        "MODEL ID",
        "PROTOCOL",
        "VERSION",
        "USE CASE",
    ];
    let rows: Vec<[String; 10]> = models
        .iter()
        .map(|it| {
            let [name, display_name, runtime, status, endpoint] = row(it);
            [
                name,
                display_name,
                runtime,
                status,
                endpoint,
                external_endpoint(it),
                it.model_id.clone(),
                it.api_protocol.clone(),
                it.version.clone(),
                it.usecase.clone(),
            ]
        })
        .collect();
    output::columns(head, &rows)
}

/// The first URL of a model: the one inside of the cluster, if it has one.
fn endpoint(model: &AAModel) -> String {
    let first = model.endpoints.first().map_or("", String::as_str);
    first.split_once(": ").map_or(first, |(_, url)| url).to_owned()
}

/// The URL outside of the cluster.
fn external_endpoint(model: &AAModel) -> String {
    let url = model.endpoints.iter().find_map(|it| it.strip_prefix("external: "));
    url.unwrap_or_default().to_owned()
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

    #[test]
    fn the_wide_table_has_the_external_url() {
        let models = [
            model("a", AAModelStatus::Running, &["internal: http://a.ns", "external: https://a"]),
            model("b", AAModelStatus::Stop, &[]),
        ];
        insta::assert_snapshot!(wide_table(&models), @r"
        NAME   DISPLAY NAME   RUNTIME   STATUS    ENDPOINT      EXTERNAL ENDPOINT   MODEL ID   PROTOCOL   VERSION   USE CASE
        a      The a          vLLM      Running   http://a.ns   https://a           a
        b      The b          vLLM      Stop                                        b
        ");
    }

    #[test]
    fn a_name_is_one_line() {
        let models = [
            model("a", AAModelStatus::Running, &[]),
            model("b\nc\u{1b}", AAModelStatus::Stop, &[]),
        ];
        assert_eq!(names(&models), "a\nb c \n");
        assert_eq!(names(&[]), "");
    }
}
