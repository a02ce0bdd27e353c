//! Bills of materials and license lists.

use std::collections::BTreeSet;

use cyclonedx_bom::models::bom::{Bom, SpecVersion};
use cyclonedx_bom::models::component::{Component, Scope};
use cyclonedx_bom::validation::Validate as _;
use release::digest::sha256;
use release::{BROKER, PLUGIN};

use crate::fixture::Release;

fn bill(release: &Release, file: &str) -> Bom {
    let bytes = release.read(file);
    let bom = Bom::parse_from_json(bytes.as_slice()).unwrap();
    let validation = bom.validate_version(SpecVersion::V1_5);
    assert!(validation.passed(), "{file}: {validation:?}");
    bom
}

fn components(bom: &Bom) -> &[Component] {
    &bom.components.as_ref().unwrap().0
}

fn find<'a>(bom: &'a Bom, name: &str) -> Option<&'a Component> {
    components(bom).iter().find(|component| &*component.name == name)
}

#[tokio::test]
async fn the_bill_of_a_program_names_what_is_linked_into_it() {
    let release = Release::shared().await;
    let broker = bill(&release, &format!("{}.cdx.json", release.stem(BROKER)));
    let about = broker.metadata.as_ref().unwrap().component.as_ref().unwrap();
    assert_eq!(&*about.name, BROKER);
    assert_eq!(about.hashes.as_ref().unwrap().0[0].content.0, sha256(release.broker()));

    let rustls = find(&broker, "rustls").unwrap();
    assert_eq!(rustls.scope, Some(Scope::Required));
    assert!(rustls.purl.as_ref().unwrap().to_string().starts_with("pkg:cargo/rustls@"));
    assert!(rustls.licenses.is_some() && rustls.hashes.is_some());
    assert_eq!(find(&broker, "serde_derive").unwrap().scope, Some(Scope::Excluded));
    assert!(find(&broker, "sqlite").is_some());
    assert!(find(&broker, "integration").is_none(), "the test harness is no part of the broker");
    assert!(find(&broker, "zbus").is_none(), "the plugin's packages are no part of the broker");

    let plugin = bill(&release, &format!("{}.cdx.json", release.stem(PLUGIN)));
    assert!(find(&plugin, "zbus").is_some());
    assert!(find(&plugin, "sqlite").is_none());
}

#[tokio::test]
async fn every_component_is_reached_by_an_edge() {
    let release = Release::shared().await;
    let broker = bill(&release, &format!("{}.cdx.json", release.stem(BROKER)));
    let edges = &broker.dependencies.as_ref().unwrap().0;
    let reached: BTreeSet<&String> =
        edges.iter().flat_map(|edge| edge.dependencies.iter()).collect();
    for component in components(&broker) {
        let reference = component.bom_ref.as_ref().unwrap();
        let of_cargo = reference.starts_with("pkg:cargo/");
        if of_cargo && component.scope == Some(Scope::Required) {
            assert!(reached.contains(reference), "{reference}");
        }
    }
}

#[tokio::test]
async fn the_bill_of_the_image_names_the_c_library_and_the_root_certificates() {
    let release = Release::shared().await;
    let image = bill(&release, &format!("{}.oci.cdx.json", release.stem(BROKER)));
    assert!(find(&image, "webpki-root-certs").is_some());
    let of_system = |component: &&Component| {
        let reference = component.bom_ref.as_ref().unwrap();
        reference.starts_with("pkg:deb/") || reference.starts_with("pkg:rpm/")
    };
    let system: Vec<&Component> = components(&image).iter().filter(of_system).collect();
    assert_eq!(system.is_empty(), release.target.is_static(), "{system:?}");
}

#[tokio::test]
async fn the_license_lists_have_the_texts_of_all_packages() {
    let release = Release::shared().await;
    let text = |file: String| String::from_utf8(release.read(&file)).unwrap();
    let broker = text(format!("{}.licenses.txt", release.stem(BROKER)));
    for expected in ["ring 0.17", "Rust standard library", "SQLite 3.", "Apache License", "ISC"] {
        assert!(broker.contains(expected), "{expected}");
    }
    assert!(!broker.contains("LGPL"), "the program itself does not contain the C library");
    let image = text(format!("{}.oci.licenses.txt", release.stem(BROKER)));
    if !release.target.is_static() {
        assert!(image.contains(": LGPL-2.1-or-later"), "the image contains the C library");
        assert!(image.contains("GNU LESSER GENERAL PUBLIC LICENSE"));
        assert!(image.contains("GCC RUNTIME LIBRARY EXCEPTION"));
    }
    assert!(image.contains("webpki-root-certs"));
}
