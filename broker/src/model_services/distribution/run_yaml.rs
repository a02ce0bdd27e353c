//! `run.yaml`: the configuration of a Llama Stack server. Versions 0.3 and 0.4 read it; 0.3 reads
//! `url` of a provider, later ones `base_url`, and each ignores the other.
//!
//! The entries of the models are JSON, in which every text is quoted. The server reads YAML 1.1, in
//! which the plain texts `yes`, `1:30` and `2024-01-01` are no texts, and serializers of YAML 1.2
//! write them without quotes.

use std::fmt::Write as _;

use serde::Serialize;

use super::{super::failure::Failure, model::ResolvedModel};

/// The largest configuration, in bytes: the limit of the data of a ConfigMap.
const MAX_BYTES: usize = 1024 * 1024;

/// The part before the providers of the models.
const HEAD: &str = "\
# Llama Stack Configuration
version: \"2\"
image_name: rh
apis:
- agents
- datasetio
- files
- inference
- safety
- scoring
- tool_runtime
- vector_io
providers:
  inference:
  - provider_id: sentence-transformers
    provider_type: inline::sentence-transformers
    config: {}
";

/// The part between the providers of the models and the models.
const MIDDLE: &str = "  vector_io:
  - provider_id: milvus
    provider_type: inline::milvus
    config:
      db_path: /opt/app-root/src/.llama/distributions/rh/milvus.db
      persistence:
        namespace: vector_io::milvus
        backend: kv_default
  agents:
  - provider_id: meta-reference
    provider_type: inline::meta-reference
    config:
      persistence:
        agent_state:
          namespace: agents
          backend: kv_default
        responses:
          table_name: responses
          backend: sql_default
  eval: []
  files:
  - provider_id: meta-reference-files
    provider_type: inline::localfs
    config:
      storage_dir: /opt/app-root/src/.llama/distributions/rh/files
      metadata_store:
        table_name: files_metadata
        backend: sql_default
  datasetio:
  - provider_id: huggingface
    provider_type: remote::huggingface
    config:
      kvstore:
        namespace: datasetio::huggingface
        backend: kv_default
  scoring:
  - provider_id: basic
    provider_type: inline::basic
    config: {}
  - provider_id: llm-as-judge
    provider_type: inline::llm-as-judge
    config: {}
  tool_runtime:
  - provider_id: rag-runtime
    provider_type: inline::rag-runtime
    config: {}
  - provider_id: model-context-protocol
    provider_type: remote::model-context-protocol
    config: {}
storage:
  backends:
    kv_default:
      type: kv_sqlite
      db_path: /opt/app-root/src/.llama/distributions/rh/kvstore.db
    sql_default:
      type: sql_sqlite
      db_path: /opt/app-root/src/.llama/distributions/rh/sql_store.db
  stores:
    metadata:
      namespace: registry
      backend: kv_default
    inference:
      table_name: inference_store
      backend: sql_default
    conversations:
      table_name: openai_conversations
      backend: sql_default
registered_resources:
  models:
  - provider_id: sentence-transformers
    model_id: granite-embedding-125m
    provider_model_id: ibm-granite/granite-embedding-125m-english
    model_type: embedding
    metadata:
      embedding_dimension: 768
";

/// The part after the models.
const TAIL: &str = "  tool_groups:
  - toolgroup_id: builtin::rag
    provider_id: rag-runtime
server:
  port: 8321
";

/// The provider of a model.
#[derive(Serialize)]
struct InferenceProvider<'a> {
    provider_id: &'a str,
    provider_type: &'static str,
    config: ProviderConfig<'a>,
}

#[derive(Serialize)]
struct ProviderConfig<'a> {
    url: &'a str,
    base_url: &'a str,
    max_tokens: &'static str,
    api_token: String,
    tls_verify: &'static str,
}

/// A model of a provider.
#[derive(Serialize)]
struct RegisteredModel<'a> {
    provider_id: &'a str,
    model_id: &'a str,
    model_type: &'static str,
    metadata: Metadata<'a>,
}

#[derive(Serialize)]
struct Metadata<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    display_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
}

/// The configuration for these models. The token of each is an environment variable.
///
/// # Errors
/// It is larger than the data of a ConfigMap.
pub(super) fn run_yaml(models: &[ResolvedModel]) -> Result<String, Failure> {
    let (mut providers, mut registered) = (String::new(), String::new());
    for (model, number) in models.iter().zip(1_usize..) {
        let provider_id = &format!("vllm-inference-{number}");
        entry(
            &mut providers,
            &InferenceProvider {
                provider_id,
                provider_type: "remote::vllm",
                config: ProviderConfig {
                    url: &model.url,
                    base_url: &model.url,
                    max_tokens: "${env.VLLM_MAX_TOKENS:=4096}",
                    api_token: format!("${{env.VLLM_API_TOKEN_{number}:=fake}}"),
                    tls_verify: "${env.VLLM_TLS_VERIFY:=true}",
                },
            },
        );
        entry(
            &mut registered,
            &RegisteredModel {
                provider_id,
                model_id: &model.id,
                model_type: "llm",
                metadata: Metadata {
                    display_name: model.display_name.as_deref(),
                    description: model.description.as_deref(),
                },
            },
        );
    }
    let yaml = [HEAD, &providers, MIDDLE, &registered, TAIL].concat();
    if yaml.len() > MAX_BYTES {
        return Err(Failure::bad_request(format!(
            "models: their configuration has {} bytes, and a ConfigMap has at most {MAX_BYTES}; name \
             fewer models, or shorten their names and descriptions",
            yaml.len()
        )));
    }
    Ok(yaml)
}

/// Adds an entry of a list.
fn entry(yaml: &mut String, value: &impl Serialize) {
    // Cannot fail: the entries are structs of texts.
    let json = serde_json::to_string(value).unwrap_or_default();
    yaml.push_str("  - ");
    for char in json.chars() {
        if is_printable(char) {
            yaml.push(char);
        } else {
            // Inside of a quoted text, as JSON has no such characters elsewhere.
            let _ = write!(yaml, "\\u{:04x}", u32::from(char));
        }
    }
    yaml.push('\n');
}

/// Whether YAML takes the character as it stands in a quoted text (YAML 1.1, `c-printable`, without
/// its line breaks and the byte order mark). JSON has escaped those below the space.
fn is_printable(char: char) -> bool {
    !matches!(
        char,
        '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}'
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn model(id: &str, display_name: Option<&str>, description: Option<&str>) -> ResolvedModel {
        ResolvedModel {
            id: id.to_owned(),
            url: format!("http://{id}.ns.svc.cluster.local:8080/v1"),
            display_name: display_name.map(str::to_owned),
            description: description.map(str::to_owned),
            token_secret: None,
        }
    }

    fn parse(models: &[ResolvedModel]) -> Value {
        serde_norway::from_str(&run_yaml(models).unwrap()).unwrap()
    }

    #[test]
    fn the_configuration_has_every_field() {
        let rh = |file: &str| format!("/opt/app-root/src/.llama/distributions/rh/{file}");
        let provider = |id: &str, kind: &str, config: Value| json!({"provider_id": id, "provider_type": kind, "config": config});
        let vllm = |number: usize, url: &str| {
            provider(
                &format!("vllm-inference-{number}"),
                "remote::vllm",
                json!({
                    "url": url, "base_url": url, "max_tokens": "${env.VLLM_MAX_TOKENS:=4096}",
                    "api_token": format!("${{env.VLLM_API_TOKEN_{number}:=fake}}"),
                    "tls_verify": "${env.VLLM_TLS_VERIFY:=true}"
                }),
            )
        };
        let kv = |namespace: &str| json!({"namespace": namespace, "backend": "kv_default"});
        let sql = |table: &str| json!({"table_name": table, "backend": "sql_default"});
        let models = [model("a", Some("A"), Some("first")), model("b", None, None)];
        assert_eq!(
            parse(&models),
            json!({
                "version": "2", "image_name": "rh",
                "apis": ["agents", "datasetio", "files", "inference", "safety", "scoring",
                    "tool_runtime", "vector_io"],
                "providers": {
                    "inference": [
                        provider("sentence-transformers", "inline::sentence-transformers", json!({})),
                        vllm(1, "http://a.ns.svc.cluster.local:8080/v1"),
                        vllm(2, "http://b.ns.svc.cluster.local:8080/v1")
                    ],
                    "vector_io": [provider("milvus", "inline::milvus", json!({
                        "db_path": rh("milvus.db"), "persistence": kv("vector_io::milvus")}))],
                    "agents": [provider("meta-reference", "inline::meta-reference", json!({
                        "persistence": {"agent_state": kv("agents"), "responses": sql("responses")}}))],
                    "eval": [],
                    "files": [provider("meta-reference-files", "inline::localfs", json!({
                        "storage_dir": rh("files"), "metadata_store": sql("files_metadata")}))],
                    "datasetio": [provider("huggingface", "remote::huggingface", json!({
                        "kvstore": kv("datasetio::huggingface")}))],
                    "scoring": [provider("basic", "inline::basic", json!({})),
                        provider("llm-as-judge", "inline::llm-as-judge", json!({}))],
                    "tool_runtime": [provider("rag-runtime", "inline::rag-runtime", json!({})),
                        provider("model-context-protocol", "remote::model-context-protocol", json!({}))]
                },
                "storage": {
                    "backends": {
                        "kv_default": {"type": "kv_sqlite", "db_path": rh("kvstore.db")},
                        "sql_default": {"type": "sql_sqlite", "db_path": rh("sql_store.db")}
                    },
                    "stores": {"metadata": kv("registry"), "inference": sql("inference_store"),
                        "conversations": sql("openai_conversations")}
                },
                "registered_resources": {
                    "models": [
                        {"provider_id": "sentence-transformers", "model_id": "granite-embedding-125m",
                         "provider_model_id": "ibm-granite/granite-embedding-125m-english",
                         "model_type": "embedding", "metadata": {"embedding_dimension": 768}},
                        {"provider_id": "vllm-inference-1", "model_id": "a", "model_type": "llm",
                         "metadata": {"display_name": "A", "description": "first"}},
                        {"provider_id": "vllm-inference-2", "model_id": "b", "model_type": "llm",
                         "metadata": {}}
                    ],
                    "tool_groups": [{"toolgroup_id": "builtin::rag", "provider_id": "rag-runtime"}]
                },
                "server": {"port": 8321}
            })
        );
    }

    #[test]
    fn a_text_that_yaml_would_read_as_another_type_is_quoted() {
        for id in ["yes", "2024-01-01", "1:30", "1_000", "012", "=", "<<", "null", "~", "1e3"] {
            let yaml = run_yaml(&[model(id, None, None)]).unwrap();
            assert!(yaml.contains(&format!("\"model_id\":\"{id}\"")), "{yaml}");
        }
    }

    #[test]
    fn a_character_that_yaml_does_not_take_is_escaped() {
        let text = "a\u{7f}\u{85}\u{9f}\u{a0}\u{2028}\u{feff}\u{ffff}\n\t\"\\é😀";
        let yaml = run_yaml(&[model("m", Some(text), None)]).unwrap();
        let escaped = "a\\u007f\\u0085\\u009f\u{a0}\\u2028\\ufeff\\uffff\\n\\t\\\"\\\\é😀";
        assert!(yaml.contains(escaped), "{yaml}");
    }

    #[test]
    fn a_configuration_fits_into_a_config_map() {
        let control = |bytes: usize| "\u{1}".repeat(bytes);
        let models = |name: &str| vec![model("m", Some(name), Some(&control(2000))); 50];
        assert!(run_yaml(&models("Granite")).unwrap().len() > 500_000);
        let failure = run_yaml(&models(&control(2000))).unwrap_err();
        assert_eq!(failure.status().as_u16(), 400);
        assert!(failure.message().contains("a ConfigMap has at most 1048576"), "{failure}");
    }

    proptest! {
        #[test]
        fn texts_of_a_model_stay_texts(id in ".+", name in any::<String>()) {
            let parsed = parse(&[model(&id, Some(&name), None), model("last", None, None)]);
            let models = &parsed["registered_resources"]["models"];
            prop_assert_eq!(&models[1]["model_id"], &json!(id));
            prop_assert_eq!(&models[1]["metadata"], &json!({ "display_name": name }));
            prop_assert_eq!(&models[2]["model_id"], "last");
            prop_assert_eq!(models.as_array().unwrap().len(), 3);
        }
    }
}
