//! A `LlamaStackDistribution` as this API reads it.

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, value::RawValue};
use tenant_shared::{DistributionConfig, DistributionStatus};

use super::super::{
    inference::ObjectMeta,
    lenient::{lenient_objects, read},
};

/// A `LlamaStackDistribution`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::model_services) struct LlamaStackDistribution {
    #[serde(deserialize_with = "read")]
    pub(in crate::model_services) metadata: ObjectMeta,
    #[serde(deserialize_with = "read")]
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    #[serde(deserialize_with = "read")]
    phase: String,
    #[serde(deserialize_with = "read")]
    version: Version,
    #[serde(deserialize_with = "read")]
    distribution_config: Config,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Version {
    #[serde(deserialize_with = "read")]
    llama_stack_server_version: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Config {
    #[serde(deserialize_with = "read")]
    active_distribution: String,
    providers: RawJson,
    available_distributions: RawJson,
}

/// A JSON value that is kept as text until it is shown. Parsed values take many times the memory of
/// their text, and only the first object of a list is shown.
#[derive(Clone, Debug, Default, Deserialize)]
struct RawJson(Option<Box<RawValue>>);

/// Values in such a text at most. A text with more of them is shown like an absent one.
const MAX_VALUES: usize = 20_000;

impl RawJson {
    /// The array or object; empty for any other value, and for one with too many values.
    fn parse<T: DeserializeOwned + Default>(&self) -> T {
        let text = self.0.as_ref().map_or("", |raw| raw.get());
        let is_separator = |byte: &u8| b",[{".contains(byte);
        if text.bytes().filter(is_separator).count() > MAX_VALUES {
            return T::default();
        }
        serde_json::from_str(text).unwrap_or_default()
    }
}

lenient_objects!(LlamaStackDistribution, Status, Version, Config);

impl LlamaStackDistribution {
    /// Its status as the API shows it.
    pub(in crate::model_services) fn into_api(self) -> DistributionStatus {
        let config = self.status.distribution_config;
        DistributionStatus {
            name: self.metadata.name,
            phase: self.status.phase,
            version: self.status.version.llama_stack_server_version,
            distribution_config: DistributionConfig {
                active_distribution: config.active_distribution,
                providers: config.providers.parse(),
                available_distributions: Value::Object(config.available_distributions.parse()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{from_value, json, to_value};

    use super::{
        super::super::lenient::{Page, tests::any_json},
        *,
    };

    fn to_api(object: Value) -> Value {
        let distribution: LlamaStackDistribution = from_value(object).unwrap();
        to_value(distribution.into_api()).unwrap()
    }

    #[test]
    fn the_status_of_the_operator_is_shown_as_it_stands() {
        let provider = json!({"api": "inference", "provider_id": "vllm-inference-1",
            "provider_type": "remote::vllm", "config": {"url": "http://a/v1", "n": [1, null]},
            "health": {"status": "OK", "message": ""}});
        let object = json!({
            "metadata": {"name": "lsd"},
            "status": {"phase": "Ready", "availableReplicas": 1,
                "version": {"llamaStackServerVersion": "0.3.5", "operatorVersion": "0.4.0"},
                "distributionConfig": {"activeDistribution": "rh-dev", "providers": [provider],
                    "availableDistributions": {"rh-dev": "quay.io/x"}}}
        });
        assert_eq!(
            to_api(object),
            json!({"name": "lsd", "phase": "Ready", "version": "0.3.5", "distributionConfig": {
                "activeDistribution": "rh-dev", "providers": [provider],
                "availableDistributions": {"rh-dev": "quay.io/x"}}})
        );
    }

    #[test]
    fn a_status_without_values_is_empty() {
        let empty = json!({"name": "lsd", "phase": "", "version": "", "distributionConfig": {
            "activeDistribution": "", "providers": [], "availableDistributions": {}}});
        for status in [
            json!(null),
            json!({}),
            json!({"phase": 1, "version": "x",
            "distributionConfig": {"providers": {}, "availableDistributions": []}}),
        ] {
            assert_eq!(to_api(json!({"metadata": {"name": "lsd"}, "status": status})), empty);
        }
    }

    #[test]
    fn a_status_with_too_many_values_is_shown_without_them() {
        let config = |count: usize| {
            let values = vec![json!({"": 0}); count];
            let config = json!({"providers": values, "availableDistributions": {"a": values}});
            let shown = to_api(json!({"status": {"phase": "Ready", "distributionConfig": config}}));
            assert_eq!(shown["phase"], "Ready");
            shown["distributionConfig"].clone()
        };
        let shown = config(MAX_VALUES / 2 - 2);
        assert_eq!(shown["providers"].as_array().unwrap().len(), MAX_VALUES / 2 - 2);
        let shown = config(MAX_VALUES);
        assert_eq!(shown["providers"], json!([]));
        assert_eq!(shown["availableDistributions"], json!({}));
    }

    const KEYS: &[&str] = &[
        "metadata",
        "name",
        "status",
        "phase",
        "version",
        "llamaStackServerVersion",
        "distributionConfig",
        "activeDistribution",
        "providers",
        "availableDistributions",
    ];

    proptest! {
        #[test]
        fn every_object_has_a_status(object in any_json(KEYS)) {
            let page: Page<LlamaStackDistribution> =
                from_value(json!({ "items": [object] })).unwrap();
            for item in page.items {
                let status = item.into_api();
                prop_assert!(status.distribution_config.available_distributions.is_object());
            }
        }
    }
}
