//! Values that the schema of the chart refuses, each for its own reason.

use integration::scratch::Scratch;
use serde_json::{Value, json};

use super::chart;

/// Values, and the key that the error names. They come after those of the installation `minimal`.
fn refused() -> Vec<(Value, &'static str)> {
    let sqlite = json!({"engine": "sqlite"});
    let terminated = json!({"tlsTerminatedByLoadBalancer": true});
    let plain_http =
        |service: &str| json!({"service": {"type": service}, "tls": {"existingSecret": ""}});
    let proxies = || json!({"trusted_proxies": ["10.20.0.0/28"]});
    let setting = |key: &str, value: Value| json!({"settings": {key: value}});
    let connector = |key: &str| json!({"settings": {"connectors": {"sso": {key: "x"}}}});
    let file = |file: Value| json!({"files": [file]});
    vec![
        (json!({"publicUrl": ""}), "/publicUrl"),
        (json!({"publicUrl": "http://tenants.example.com"}), "/publicUrl"),
        (json!({"publicUrl": "https://tenants.example.com/broker"}), "/publicUrl"),
        (json!({"publicUrl": null}), "publicUrl"),
        (json!({"publcUrl": "https://tenants.example.com"}), "publcUrl"),
        (json!({"image": {"registry": ""}}), "/image/registry"),
        (json!({"image": {"digest": "latest"}}), "/image/digest"),
        (json!({"image": {"pullPolicy": "Sometimes"}}), "/image/pullPolicy"),
        (json!({"replicas": 0}), "/replicas"),
        (json!({"replicas": "2"}), "/replicas"),
        (json!({"database": {"engine": "mysql"}}), "/database/engine"),
        (json!({"database": {"existingSecret": ""}}), "/database/existingSecret"),
        (json!({"database": sqlite, "replicas": 2}), "/replicas"),
        (
            json!({"database": sqlite, "replicas": 1, "autoscaling": {"enabled": true}}),
            "/autoscaling/enabled",
        ),
        (json!({"issuer": {"existingSecret": ""}}), "/issuer/existingSecret"),
        (json!({"issuer": {"keys": []}}), "/issuer/keys"),
        (json!({"issuer": {"keys": ["../key"]}}), "/issuer/keys"),
        (json!({"tls": {"certificate": {"enabled": true}}}), "/tls/certificate/issuerRef/name"),
        (
            json!({"service": terminated, "tls": {"existingSecret": "", "certificate":
                {"enabled": true, "issuerRef": {"name": "ca"}}}}),
            "/tls/existingSecret",
        ),
        (json!({"serviceAccount": {"create": true}}), "/cluster/kubeconfigSecret"),
        (setting("listen", json!("0.0.0.0:1")), "/settings/listen"),
        (setting("public_url", json!("https://x.example")), "/settings/public_url"),
        (setting("database", json!({"url": "postgres://u:p@h/d"})), "/settings/database"),
        (setting("tls", json!({})), "/settings/tls"),
        (setting("cluster", json!({"identity": "x"})), "/settings/cluster/identity"),
        (setting("issuer", json!({"signing_key_files": []})), "/settings/issuer/signing_key_files"),
        (setting("sweep_seconds", json!(1.5)), "/settings/sweep_seconds"),
        (connector("client_secret"), "/settings/connectors/sso/client_secret"),
        (connector("client_secret_file"), "/settings/connectors/sso/client_secret_file"),
        (json!({"connectorSecrets": [{"connector": "sso"}]}), "/connectorSecrets/0"),
        (file(json!({"key": "a", "path": "a"})), "/files/0"),
        (file(json!({"key": "a", "path": "a", "secret": "s", "configMap": "c"})), "/files/0"),
        (file(json!({"key": "a", "path": "../a", "secret": "s"})), "/files/0/path"),
        (json!({"bindAddress": "localhost"}), "/bindAddress"),
        (json!({"service": {"port": 70_000}}), "/service/port"),
        (plain_http("LoadBalancer"), "/service/tlsTerminatedByLoadBalancer"),
        (plain_http("NodePort"), "/service/tlsTerminatedByLoadBalancer"),
        (json!({"settings": proxies()}), "/networkPolicy/publicFrom"),
        (setting("trusted_proxies", json!("10.20.0.1")), "/networkPolicy/publicFrom"),
        (
            json!({"settings": proxies(), "networkPolicy": {"enabled": false, "publicFrom": [{}]}}),
            "/networkPolicy/enabled",
        ),
        (json!({"httpRoute": {"enabled": true}}), "/httpRoute/parentRefs"),
        (json!({"serviceMonitor": {"enabled": true}}), "/networkPolicy/metricsFrom"),
        (json!({"podDisruptionBudget": {"maxUnavailable": 0}}), "/podDisruptionBudget"),
    ]
}

#[tokio::test]
async fn a_proxy_that_is_named_may_terminate_tls_and_report_addresses() {
    let scratch = Scratch::new("chart").unwrap();
    let helm = chart::helm(scratch.path()).await.unwrap();
    let file = scratch.path().join("values.yaml");
    let more = ["--values", file.to_str().unwrap()];
    let peers = json!([{"ipBlock": {"cidr": "10.20.0.0/28"}}]);
    for values in [
        json!({"tls": {"existingSecret": ""}, "service": {"type": "ClusterIP"}}),
        json!({"tls": {"existingSecret": ""}, "service": {"tlsTerminatedByLoadBalancer": true}}),
        json!({"settings": {"trusted_proxies": []}}),
        json!({
            "settings": {"trusted_proxies": ["10.20.0.0/28"]},
            "networkPolicy": {"publicFrom": peers},
        }),
    ] {
        std::fs::write(&file, values.to_string()).unwrap();
        let rendered = chart::run(&helm, "template", "minimal", &more).await.unwrap();
        assert!(rendered.status.success(), "{values}: {}", rendered.stderr);
    }
}

#[tokio::test]
async fn the_schema_refuses_wrong_values_and_names_them() {
    let scratch = Scratch::new("chart").unwrap();
    let helm = chart::helm(scratch.path()).await.unwrap();
    let file = scratch.path().join("values.yaml");
    let more = ["--values", file.to_str().unwrap()];
    for (values, key) in refused() {
        std::fs::write(&file, values.to_string()).unwrap();
        let rendered = chart::run(&helm, "template", "minimal", &more).await.unwrap();
        assert!(!rendered.status.success(), "{values} is accepted");
        assert!(rendered.stderr.contains("schema"), "{values}: {}", rendered.stderr);
        assert!(rendered.stderr.contains(key), "{values}: {key} is not in: {}", rendered.stderr);
    }
}
