//! The bill of materials of a program or of the image: `CycloneDX` 1.5 in JSON.
//!
//! Packages that run only while the program is built have the scope `excluded`. There is no serial
//! number, because two builds of one commit have the same bill.

use std::collections::BTreeSet;

use anyhow::{Context, Result, anyhow, ensure};
use cyclonedx_bom::external_models::date_time::DateTime;
use cyclonedx_bom::external_models::normalized_string::NormalizedString;
use cyclonedx_bom::external_models::spdx::SpdxExpression;
use cyclonedx_bom::external_models::uri::{Purl, Uri};
use cyclonedx_bom::models::bom::{Bom, SpecVersion};
use cyclonedx_bom::models::component::{Classification, Component, Components, Scope};
use cyclonedx_bom::models::dependency::{Dependencies as Edges, Dependency};
use cyclonedx_bom::models::external_reference::{
    ExternalReference, ExternalReferenceType, ExternalReferences,
};
use cyclonedx_bom::models::hash::{Hash, HashAlgorithm, HashValue, Hashes};
use cyclonedx_bom::models::license::{LicenseChoice, Licenses};
use cyclonedx_bom::models::metadata::Metadata;
use cyclonedx_bom::models::tool::Tools;
use cyclonedx_bom::validation::Validate as _;

use crate::c_library::SystemPackage;
use crate::dependencies::{Dependencies, Id, Package};
use crate::digest::sha256;
use crate::source::Source;

/// Writes the bill of a program, whose bytes are `program`.
///
/// # Errors
/// A license is no SPDX expression, or the bill violates the specification.
pub fn of_program(dependencies: &Dependencies, program: &[u8], source: &Source) -> Result<Vec<u8>> {
    let mut bill = BillOfMaterials::default();
    bill.add_packages(dependencies)?;
    let mut root = component(Classification::Application, &dependencies.root, source)?;
    root.hashes = Some(Hashes(vec![sha256_hash(sha256(program))]));
    bill.write(root, source)
}

/// Writes the bill of the image with this program, these packages of the system it was built on,
/// and the root certificates. `digest` is that of the image's manifest, in hexadecimal digits.
///
/// # Errors
/// As [`of_program`].
pub fn of_image(
    dependencies: &Dependencies,
    packages: &BTreeSet<SystemPackage>,
    digest: &str,
    source: &Source,
) -> Result<Vec<u8>> {
    let mut bill = BillOfMaterials::default();
    bill.add_packages(dependencies)?;
    let (id, roots) = &dependencies.roots;
    if !dependencies.linked.contains_key(id) {
        bill.components.push(cargo_component(id, roots, Scope::Required)?);
    }
    for package in packages {
        bill.components.push(system_component(package)?);
    }
    let mut root = component(Classification::Container, &dependencies.root, source)?;
    root.hashes = Some(Hashes(vec![sha256_hash(digest.to_owned())]));
    bill.write(root, source)
}

#[derive(Default)]
struct BillOfMaterials {
    components: Vec<Component>,
    edges: Vec<Dependency>,
}

impl BillOfMaterials {
    fn add_packages(&mut self, dependencies: &Dependencies) -> Result<()> {
        for (id, package) in &dependencies.linked {
            if *id != dependencies.root {
                self.components.push(cargo_component(id, package, Scope::Required)?);
            }
            let needs = package.needs.iter().map(|id| Ok(purl(id)?.to_string()));
            self.edges.push(Dependency {
                dependency_ref: purl(id)?.to_string(),
                dependencies: needs.collect::<Result<_>>()?,
            });
        }
        for (id, package) in &dependencies.build_only {
            self.components.push(cargo_component(id, package, Scope::Excluded)?);
        }
        let rust = [("rust-std", dependencies.rust.as_str(), "MIT OR Apache-2.0")];
        let sqlite = dependencies.sqlite.as_deref().map(|version| ("sqlite", version, "blessing"));
        for (name, version, license) in rust.into_iter().chain(sqlite) {
            let purl = Purl::new("generic", name, version).context("name a package by a URL")?;
            let reference = Some(purl.to_string());
            let mut component = Component::new(Classification::Library, name, version, reference);
            component.purl = Some(purl);
            component.licenses = Some(licenses(license)?);
            self.components.push(component);
        }
        Ok(())
    }

    fn write(self, root: Component, source: &Source) -> Result<Vec<u8>> {
        let version = source.version.to_string();
        let tool =
            Component::new(Classification::Application, "cargo make-release", &version, None);
        let time = DateTime::try_from(source.rfc3339()?).context("write the time of a commit")?;
        let bom = Bom {
            serial_number: None,
            spec_version: SpecVersion::V1_5,
            metadata: Some(Metadata {
                timestamp: Some(time),
                tools: Some(Tools::Object {
                    services: None,
                    components: Some(Components(vec![tool])),
                }),
                component: Some(root),
                ..Metadata::default()
            }),
            components: Some(Components(self.components)),
            dependencies: Some(Edges(self.edges)),
            ..Bom::default()
        };
        let validation = bom.validate_version(SpecVersion::V1_5);
        ensure!(validation.passed(), "the bill of materials is invalid: {validation:?}");
        let mut json = Vec::new();
        bom.output_as_json_v1_5(&mut json).context("write a bill of materials")?;
        Ok(json)
    }
}

/// The component that the bill is about.
fn component(kind: Classification, id: &Id, source: &Source) -> Result<Component> {
    let mut component =
        Component::new(kind, &id.name, &source.version.to_string(), Some(purl(id)?.to_string()));
    component.licenses = Some(licenses("Apache-2.0")?);
    component.external_references = repository(&source.repository);
    Ok(component)
}

fn cargo_component(id: &Id, package: &Package, scope: Scope) -> Result<Component> {
    let purl = purl(id)?;
    let reference = Some(purl.to_string());
    let mut component = Component::new(Classification::Library, &id.name, &id.version, reference);
    component.purl = Some(purl);
    component.scope = Some(scope);
    component.licenses = Some(licenses(&package.license)?);
    component.hashes = package.checksum.clone().map(|sum| Hashes(vec![sha256_hash(sum)]));
    component.external_references = package.repository.as_deref().and_then(repository);
    Ok(component)
}

fn system_component(package: &SystemPackage) -> Result<Component> {
    let SystemPackage { name, version, kind, distribution, license } = package;
    // A plus sign means a space in some parsers of package URLs.
    let encoded = version.replace('+', "%2B");
    let text = format!("pkg:{kind}/{distribution}/{name}@{encoded}");
    let purl: Purl = text.parse().map_err(|()| anyhow!("{text} is no package URL"))?;
    let mut component = Component::new(Classification::Library, name, version, Some(text));
    component.purl = Some(purl);
    component.scope = Some(Scope::Required);
    component.licenses = Some(licenses(license)?);
    component.description = Some(NormalizedString::new("shared libraries, unchanged"));
    Ok(component)
}

fn purl(id: &Id) -> Result<Purl> {
    Purl::new("cargo", &id.name, &id.version)
        .with_context(|| format!("name {} {} by a URL", id.name, id.version))
}

fn licenses(expression: &str) -> Result<Licenses> {
    let parsed = SpdxExpression::parse_lax(expression.to_owned());
    let parsed = parsed.with_context(|| format!("{expression:?} is no SPDX expression"))?;
    Ok(Licenses(vec![LicenseChoice::Expression(parsed)]))
}

fn sha256_hash(digits: String) -> Hash {
    Hash { alg: HashAlgorithm::SHA_256, content: HashValue(digits) }
}

/// A package may name a repository that is no URI; the bill then has none.
fn repository(url: &str) -> Option<ExternalReferences> {
    let uri = Uri::try_from(url.to_owned()).ok()?;
    Some(ExternalReferences(vec![ExternalReference::new(ExternalReferenceType::Vcs, uri)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licenses_of_the_older_form_become_expressions() {
        let Licenses(choices) = licenses("MIT/Apache-2.0").unwrap();
        assert_eq!(choices, [LicenseChoice::expression("MIT OR Apache-2.0")]);
        assert!(licenses("Do what you want").is_err());
    }

    #[test]
    fn packages_of_the_system_have_encoded_urls() {
        let package = SystemPackage {
            name: "libc6".to_owned(),
            version: "2.36-9+deb12u14".to_owned(),
            kind: "deb",
            distribution: "debian".to_owned(),
            license: "LGPL-2.1-or-later",
        };
        let component = system_component(&package).unwrap();
        let url = component.purl.unwrap().to_string();
        assert_eq!(url, "pkg:deb/debian/libc6@2.36-9%2Bdeb12u14");
    }
}
