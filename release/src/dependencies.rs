//! The packages that one of our programs is built from, as cargo resolves them for its target and
//! its own features.
//!
//! `cargo metadata` knows licenses, folders and edges, but its features are those of the whole
//! workspace. `cargo tree --package` knows exactly which packages are built for one program.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, PackageId};
use integration::process::Program;
use serde::Deserialize;

use crate::target::{self, Target};

/// Time limit of `cargo tree`, which may have to download packages.
const TREE_TIMEOUT: Duration = Duration::from_mins(10);
/// The package that contains SQLite's source.
const SQLITE_PACKAGE: &str = "libsqlite3-sys";
/// The package with Mozilla's root certificates.
const ROOTS_PACKAGE: &str = "webpki-root-certs";

/// Name and version of a package. Two sources of one version cannot occur, because `.deny.toml`
/// allows one registry only.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id {
    /// The name.
    pub name: String,
    /// The version.
    pub version: String,
}

/// A package of the registry or of this workspace.
#[derive(Clone, Debug)]
pub struct Package {
    /// SPDX expression, or the older form with `/` for OR.
    pub license: String,
    /// URL of its repository.
    pub repository: Option<String>,
    /// Folder of its source.
    pub folder: PathBuf,
    /// Whether it belongs to this workspace.
    pub ours: bool,
    /// SHA-256 of the package file in the registry, in hexadecimal digits (`Cargo.lock`).
    pub checksum: Option<String>,
    /// Its direct dependencies among the packages that are linked into the program.
    pub needs: BTreeSet<Id>,
}

/// The packages of one program for one target.
#[derive(Clone, Debug)]
pub struct Dependencies {
    /// The package of the program itself, which is in `linked`, too.
    pub root: Id,
    /// Packages whose code is in the program.
    pub linked: BTreeMap<Id, Package>,
    /// Packages that run while the program is built: build scripts, procedural macros, and what
    /// they need.
    pub build_only: BTreeMap<Id, Package>,
    /// Version of SQLite, if the program contains it.
    pub sqlite: Option<String>,
    /// Version of Rust, whose standard library is in every program.
    pub rust: String,
    /// The package with the root certificates that the image contains.
    pub roots: (Id, Package),
}

impl Dependencies {
    /// Resolves the dependencies of a package of the workspace at `root`.
    ///
    /// # Errors
    /// cargo fails, or a package names no license.
    pub async fn resolve(root: &Path, package: &str, target: Target) -> Result<Self> {
        let metadata = MetadataCommand::new()
            .manifest_path(root.join("Cargo.toml"))
            .other_options(["--locked", "--filter-platform", target.triple].map(str::to_owned))
            .exec()
            .context("read the dependencies with cargo metadata")?;
        let linked = tree(root, package, target, "normal,no-proc-macro").await?;
        let all = tree(root, package, target, "normal,build").await?;
        let catalogue = Catalogue::new(&metadata, &linked, &root.join("Cargo.lock"))?;
        let build_only = catalogue.packages(all.difference(&linked))?;
        let linked = catalogue.packages(&linked)?;
        let sqlite = linked.iter().find(|(id, _)| id.name == SQLITE_PACKAGE);
        let sqlite = sqlite.map(|(_, package)| sqlite_version(&package.folder)).transpose()?;
        let program = linked.keys().find(|id| id.name == package).cloned();
        Ok(Self {
            root: program.with_context(|| format!("cargo tree does not list {package}"))?,
            linked,
            build_only,
            sqlite,
            rust: target::rust_version().await?,
            roots: catalogue.named(ROOTS_PACKAGE)?,
        })
    }
}

/// All packages of the workspace's dependencies.
struct Catalogue<'a> {
    packages: BTreeMap<Id, &'a cargo_metadata::Package>,
    /// Edges between packages that are linked into the program.
    needs: BTreeMap<Id, BTreeSet<Id>>,
    checksums: BTreeMap<Id, String>,
}

impl<'a> Catalogue<'a> {
    fn new(metadata: &'a Metadata, linked: &BTreeSet<Id>, lock: &Path) -> Result<Self> {
        let ids: HashMap<&PackageId, Id> =
            metadata.packages.iter().map(|package| (&package.id, id(package))).collect();
        let resolve = metadata.resolve.as_ref().context("cargo metadata resolved nothing")?;
        let mut needs: BTreeMap<Id, BTreeSet<Id>> = BTreeMap::new();
        for node in &resolve.nodes {
            let from = &ids[&node.id];
            let normal = node.deps.iter().filter(|dependency| {
                dependency.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal)
            });
            let to =
                normal.map(|dependency| &ids[&dependency.pkg]).filter(|to| linked.contains(*to));
            needs.insert(from.clone(), to.cloned().collect());
        }
        let packages = metadata.packages.iter().map(|package| (id(package), package)).collect();
        Ok(Self { packages, needs, checksums: checksums(lock)? })
    }

    fn packages<'b>(&self, ids: impl IntoIterator<Item = &'b Id>) -> Result<BTreeMap<Id, Package>> {
        ids.into_iter().map(|id| Ok((id.clone(), self.package(id)?))).collect()
    }

    fn package(&self, id: &Id) -> Result<Package> {
        let Id { name, version } = id;
        let package = self
            .packages
            .get(id)
            .with_context(|| format!("cargo metadata does not list {name} {version}"))?;
        let license = package.license.clone();
        let folder = package.manifest_path.parent().context("a manifest is in no folder")?;
        Ok(Package {
            license: license.with_context(|| format!("{name} {version} names no license"))?,
            repository: package.repository.clone(),
            folder: folder.as_std_path().to_owned(),
            ours: package.source.is_none(),
            checksum: self.checksums.get(id).cloned(),
            needs: self.needs.get(id).cloned().unwrap_or_default(),
        })
    }

    fn named(&self, name: &str) -> Result<(Id, Package)> {
        let id = self.packages.keys().find(|id| id.name == name);
        let id = id.with_context(|| format!("cargo metadata does not list {name}"))?;
        Ok((id.clone(), self.package(id)?))
    }
}

fn id(package: &cargo_metadata::Package) -> Id {
    Id { name: package.name.to_string(), version: package.version.to_string() }
}

/// Returns the packages that `cargo tree` lists with these edges.
async fn tree(root: &Path, package: &str, target: Target, edges: &str) -> Result<BTreeSet<Id>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let listed = Program::new(cargo)
        .args(["tree", "--locked", "--prefix", "none", "--format", "{p}"])
        .args(["--package", package, "--target", target.triple, "--edges", edges])
        .in_folder(root)
        .run(TREE_TIMEOUT)
        .await?
        .success()
        .context("list the dependencies with cargo tree")?;
    listed.stdout.lines().filter(|line| !line.trim().is_empty()).map(parse_line).collect()
}

/// Reads a line such as `serde v1.0.229 (*)` or `release v0.1.0 (/folder)`.
fn parse_line(line: &str) -> Result<Id> {
    let mut words = line.split_whitespace();
    let (name, version) = words.next().zip(words.next()).unwrap_or_default();
    let version = version.strip_prefix('v');
    let version = version.with_context(|| format!("cargo tree printed {line:?}"))?;
    Ok(Id { name: name.to_owned(), version: version.to_owned() })
}

/// The parts of `Cargo.lock` that `cargo metadata` lacks.
#[derive(Deserialize)]
struct Lock {
    package: Vec<LockedPackage>,
}

#[derive(Deserialize)]
struct LockedPackage {
    name: String,
    version: String,
    checksum: Option<String>,
}

fn checksums(lock: &Path) -> Result<BTreeMap<Id, String>> {
    let text = std::fs::read_to_string(lock).context("read Cargo.lock")?;
    let lock: Lock = toml::from_str(&text).context("parse Cargo.lock")?;
    let packages = lock.package.into_iter();
    Ok(packages
        .filter_map(|LockedPackage { name, version, checksum }| {
            Some((Id { name, version }, checksum?))
        })
        .collect())
}

/// Reads the version from the header file of SQLite.
fn sqlite_version(folder: &Path) -> Result<String> {
    let header = folder.join("sqlite3/sqlite3.h");
    let text = std::fs::read_to_string(&header)
        .with_context(|| format!("read SQLite's version from {}", header.display()))?;
    let version = text.lines().find_map(|line| line.strip_prefix("#define SQLITE_VERSION "));
    let version = version.with_context(|| format!("{} has no version", header.display()))?;
    Ok(version.trim().trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_cargo_tree_have_a_name_and_a_version() {
        for line in ["serde v1.0.2", "serde v1.0.2 (*)", "serde v1.0.2 (proc-macro) (*)"] {
            let id = parse_line(line).unwrap();
            assert_eq!((id.name.as_str(), id.version.as_str()), ("serde", "1.0.2"));
        }
        assert!(parse_line("[build-dependencies]").is_err());
    }

    #[tokio::test]
    async fn the_broker_contains_sqlite_and_no_test_harness() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let host = target::host().await.unwrap();
        let target = crate::target::TARGETS.into_iter().find(|one| one.triple == host).unwrap();
        let broker = Dependencies::resolve(root, crate::BROKER, target).await.unwrap();
        let linked = |name: &str| broker.linked.keys().any(|id| id.name == name);
        let build_only = |name: &str| broker.build_only.keys().any(|id| id.name == name);
        assert!(linked("rustls") && linked("libsqlite3-sys"));
        assert!(!linked("integration") && !linked("insta") && !linked("zbus"));
        assert!(build_only("serde_derive") && !linked("serde_derive"));
        assert!(broker.sqlite.as_ref().is_some_and(|version| version.starts_with("3.")));
        let ring = broker.linked.iter().find(|(id, _)| id.name == "ring").unwrap().1;
        assert!(!ring.ours && ring.checksum.as_ref().is_some_and(|sum| sum.len() == 64));
        assert!(broker.linked[&broker.root].ours);
        let direct = &broker.linked[&broker.root].needs;
        assert!(direct.iter().any(|id| id.name == "poem"));
        assert!(!direct.iter().any(|id| id.name == "insta"));
        assert_eq!(broker.roots.1.license, "CDLA-Permissive-2.0");
    }
}
