//! The artifacts of a release, from built programs: which files there are, and what is in them.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;

use crate::c_library::{self, Library, SystemPackage};
use crate::compile::Programs;
use crate::dependencies::Dependencies;
use crate::file_tree::{FILE_MODE, FileTree};
use crate::linkage::Linkage;
use crate::output::{Artifact, Output};
use crate::package::{self, Format, Package};
use crate::plugin_files::PluginFiles;
use crate::source::Source;
use crate::target::{Os, Target};
use crate::{
    BROKER, PLUGIN, archive, bill_of_materials, deployment, image, installer, krew, licenses,
};

/// Maximum size of an image, which is compressed.
pub const MAX_IMAGE_BYTES: usize = 40_000_000;
/// The list of checksums.
pub const CHECKSUMS: &str = "SHA256SUMS";
/// The installer script.
pub const INSTALLER: &str = "install.sh";

/// What was made.
#[derive(Clone, Debug)]
pub struct Report {
    /// The artifacts, in the order in which they were made.
    pub artifacts: Vec<Artifact>,
    /// Facts about them for the summary, each a sentence.
    pub notes: Vec<String>,
}

/// Writes all artifacts into a folder. The same programs and the same source give the same bytes.
///
/// # Errors
/// A document of the checkout is missing, a license is unknown, an image is too large, or a file
/// cannot be written.
pub async fn write(
    source: &Source,
    programs: &[Programs],
    shared: &PluginFiles,
    folder: &Path,
) -> Result<Report> {
    let mut builder = ArtifactBuilder {
        source,
        shared,
        deploy: deployment::files(source).await?,
        output: Output::new(folder),
        archives: Vec::new(),
        notes: Vec::new(),
    };
    for programs in programs {
        builder.plugin(programs).await?;
        if let Some(broker) = &programs.broker {
            builder.broker(broker, programs).await?;
        }
    }
    builder.for_all_platforms()?;
    builder.output.add_checksums(CHECKSUMS)?;
    Ok(Report { artifacts: builder.output.into_artifacts(), notes: builder.notes })
}

struct ArtifactBuilder<'a> {
    source: &'a Source,
    shared: &'a PluginFiles,
    deploy: FileTree,
    output: Output,
    archives: Vec<krew::Archive>,
    notes: Vec<String>,
}

impl ArtifactBuilder<'_> {
    async fn plugin(&mut self, programs: &Programs) -> Result<()> {
        let (source, shared) = (self.source, self.shared);
        let (target, program) = (programs.target, &programs.plugin);
        let stem = self.stem(PLUGIN, target);
        let root = &source.root;
        let dependencies = Dependencies::resolve(root, PLUGIN, target).await?;
        let documents = self.documents(&stem, "docs/kubectl-tenant.md", &dependencies, program)?;
        let archive = archive::plugin(program.clone(), shared, &documents, source)?;
        let file = format!("{stem}.tar.gz");
        let sha256 = self.output.add(&file, &archive)?;
        self.archives.push(krew::Archive { target, file, sha256 });
        if target.os != Os::Linux {
            return Ok(());
        }
        let linkage = self.linkage(PLUGIN, program, target)?;
        self.packages(|format| {
            Ok(Package {
                name: PLUGIN,
                summary: "kubectl plugin that signs in at a tenant broker",
                description: "Signs you in at your company's tenant broker, creates a namespace \
                              of your own in a shared Kubernetes cluster, and renews the two-hour \
                              tokens that kubectl uses there.",
                section: "utils",
                arch: target.arch,
                files: package::plugin_files(program.clone(), shared, &documents, format)?,
                linkage: linkage.clone(),
            })
        })
    }

    async fn broker(&mut self, program: &Bytes, programs: &Programs) -> Result<()> {
        let (source, target) = (self.source, programs.target);
        let stem = self.stem(BROKER, target);
        let dependencies = Dependencies::resolve(&source.root, BROKER, target).await?;
        let documents = self.documents(&stem, "README.md", &dependencies, program)?;
        let units = deployment::units(&self.deploy);
        let archive = archive::broker(program.clone(), &units, &documents, source)?;
        self.output.add(&format!("{stem}.tar.gz"), &archive)?;
        let linkage = self.linkage(BROKER, program, target)?;
        self.packages(|format| {
            Ok(Package {
                name: BROKER,
                summary: "broker of namespaces in shared Kubernetes clusters",
                description: "Gives each person a namespace of their own in a Kubernetes cluster, \
                              and two-hour credentials for it. Stores its data in PostgreSQL or \
                              SQLite.",
                section: "admin",
                arch: target.arch,
                files: package::broker_files(program.clone(), &units, &documents, format),
                linkage: linkage.clone(),
            })
        })?;
        if programs.profile_guided {
            self.notes.push(format!("{stem} was built with a profile (PGO)."));
        } else {
            self.notes.push(format!("{stem} was built without a profile (PGO)."));
        }
        self.image(&stem, program, &dependencies, target).await
    }

    async fn image(
        &mut self,
        stem: &str,
        program: &Bytes,
        dependencies: &Dependencies,
        target: Target,
    ) -> Result<()> {
        let source = self.source;
        let libraries: Vec<Library> = c_library::find(program, target.arch).await?;
        let packages: BTreeSet<SystemPackage> =
            libraries.iter().map(|library| library.package.clone()).collect();
        let title = format!("The image of {BROKER} {}", source.version);
        let list = licenses::list(&title, dependencies, Some(&packages))?;
        let mut documents = FileTree::default();
        let folder = format!("usr/share/doc/{BROKER}");
        documents.add_file(&format!("{folder}/LICENSE"), FILE_MODE, self.read("LICENSE")?);
        let bill = bill_of_materials::of_program(dependencies, program, source)?;
        documents.add_file(&format!("{folder}/{BROKER}.cdx.json"), FILE_MODE, bill);
        let list = Bytes::from(list);
        documents.add_file(&format!("{folder}/THIRD-PARTY-LICENSES.txt"), FILE_MODE, list.clone());
        let contents = image::Contents {
            arch: target.arch,
            program: program.clone(),
            libraries: &libraries,
            documents: &documents,
        };
        let image = image::build(&contents, source)?;
        ensure!(
            source.trial || image.tar.len() < MAX_IMAGE_BYTES,
            "the image has {} bytes, and the limit is {MAX_IMAGE_BYTES}",
            image.tar.len()
        );
        self.notes.push(format!("The image {stem} has the digest sha256:{}.", image.digest));
        self.output.add(&format!("{stem}.oci.tar"), &image.tar)?;
        let bill = bill_of_materials::of_image(dependencies, &packages, &image.digest, source)?;
        self.output.add(&format!("{stem}.oci.cdx.json"), &bill)?;
        self.output.add(&format!("{stem}.oci.licenses.txt"), &list)?;
        Ok(())
    }

    /// Makes the artifacts that are the same for every platform.
    fn for_all_platforms(&mut self) -> Result<()> {
        let source = self.source;
        let manifest = krew::manifest(&self.archives, source)?;
        self.output.add(&format!("{}.yaml", krew::PLUGIN_NAME), manifest.as_bytes())?;
        let script = installer::stamp(&self.read("release/install.sh")?, source)?;
        self.output.add(INSTALLER, script.as_bytes())?;
        match deployment::chart(&self.deploy, source) {
            Ok(chart) => {
                self.output.add(&format!("{BROKER}-{}.tgz", source.version), &chart)?;
            }
            // A trial may have another version than the chart.
            Err(error) if source.trial => self.notes.push(format!("No Helm chart: {error:#}.")),
            Err(error) => return Err(error),
        }
        let folder = deployment::whole(&self.deploy, source)?;
        self.output.add(&format!("{BROKER}_{}_deploy.tar.gz", source.version), &folder)?;
        Ok(())
    }

    /// Adds bill of materials and license list of a program; returns the documents that its archive
    /// and its packages contain.
    fn documents(
        &mut self,
        stem: &str,
        readme: &str,
        dependencies: &Dependencies,
        program: &[u8],
    ) -> Result<FileTree> {
        let name = &dependencies.root.name;
        let bill = Bytes::from(bill_of_materials::of_program(dependencies, program, self.source)?);
        self.output.add(&format!("{stem}.cdx.json"), &bill)?;
        let title = format!("{name} {}", self.source.version);
        let list = Bytes::from(licenses::list(&title, dependencies, None)?);
        self.output.add(&format!("{stem}.licenses.txt"), &list)?;
        let mut documents = FileTree::default();
        documents.add_file("LICENSE", FILE_MODE, self.read("LICENSE")?);
        documents.add_file("README.md", FILE_MODE, self.read(readme)?);
        documents.add_file("THIRD-PARTY-LICENSES.txt", FILE_MODE, list);
        documents.add_file(&format!("{name}.cdx.json"), FILE_MODE, bill);
        Ok(documents)
    }

    /// Adds the packages of both formats.
    fn packages(&mut self, package: impl Fn(Format) -> Result<Package>) -> Result<()> {
        let version = &self.source.version;
        let deb = package(Format::Deb)?;
        let file = format!("{}_{version}_{}.deb", deb.name, deb.arch.name());
        self.output.add(&file, &package::deb(&deb, self.source)?)?;
        let rpm = package(Format::Rpm)?;
        let file = format!("{}-{version}-1.{}.rpm", rpm.name, rpm.arch.machine());
        self.output.add(&file, &package::rpm(&rpm, self.source)?)?;
        Ok(())
    }

    /// Reads what a program needs, and notes it for the summary.
    fn linkage(&mut self, name: &str, program: &[u8], target: Target) -> Result<Linkage> {
        let linkage = Linkage::read(program).with_context(|| format!("look at {name}"))?;
        let stem = self.stem(name, target);
        self.notes.push(match linkage.glibc() {
            Some((major, minor)) => {
                format!("{stem} needs the GNU C library {major}.{minor} or later.")
            }
            None => format!("{stem} is static and needs no C library."),
        });
        Ok(linkage)
    }

    fn stem(&self, name: &str, target: Target) -> String {
        format!("{name}_{}_{}", self.source.version, target.platform())
    }

    fn read(&self, path: &str) -> Result<String> {
        let file = self.source.root.join(path);
        std::fs::read_to_string(file).with_context(|| format!("read {path}"))
    }
}
