//! Tests that the committed generated files match the code.
//! `UPDATE_GENERATED=1 cargo test -p tenant-broker --test generated` rewrites them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::path::Path;

fn compare(file: &str, expected: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::write(&path, expected).unwrap();
    }
    let actual = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        actual == expected,
        "{file} differs from the code; \
         run UPDATE_GENERATED=1 cargo test -p tenant-broker --test generated"
    );
}

#[test]
fn the_openapi_document_is_up_to_date() {
    compare("openapi/broker.yaml", &tenant_broker::app::document());
}

#[test]
fn the_openapi_document_of_model_services_is_up_to_date() {
    compare("openapi/model-services.yaml", &tenant_broker::app::model_services_document());
}

#[test]
fn the_reference_of_settings_is_up_to_date() {
    compare("docs/configuration.md", &tenant_broker::config::reference());
}

#[test]
fn the_reference_of_metrics_is_up_to_date() {
    compare("docs/metrics.md", &tenant_broker::app::metrics_reference());
}
