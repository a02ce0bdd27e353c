//! Files that are written from the code, committed, and compared here.
//! `UPDATE_GENERATED=1 cargo test -p tenant-broker --test generated` rewrites them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::path::Path;

fn compare(file: &str, wanted: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::write(&path, wanted).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        there == wanted,
        "{file} is not what the code says; \
         run UPDATE_GENERATED=1 cargo test -p tenant-broker --test generated"
    );
}

#[test]
fn the_openapi_document() {
    compare("openapi/broker.yaml", &tenant_broker::app::document());
}

#[test]
fn the_reference_of_settings() {
    compare("docs/configuration.md", &tenant_broker::config::reference());
}
