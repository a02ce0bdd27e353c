//! Packages of RPM, version 4 of the format, which every distribution reads.

use ::rpm::{BuildConfig, CompressionType, Dependency, FileOptions, PackageBuilder};
use anyhow::{Context, Result};

use super::{Package, rpm_dependencies};
use crate::source::Source;

/// Folder of files that the package manager marks as documentation.
const DOCUMENTATION: &str = "usr/share/doc/";

/// Builds a package for RPM. It is not signed.
///
/// # Errors
/// A value has a character that the format refuses.
pub fn rpm(package: &Package, source: &Source) -> Result<Vec<u8>> {
    let version = source.package_version();
    let arch = package.arch.machine();
    let mut builder =
        PackageBuilder::new(package.name, &version, "Apache-2.0", arch, package.summary);
    let config = BuildConfig::v4().compression(CompressionType::Gzip).source_date(source.time);
    builder
        .using_config(config)
        .release("1")
        .description(package.description)
        .url(source.repository.as_str())
        .vendor("kubectl-tenant")
        // The name of the machine would make every build differ.
        .build_host("localhost")
        .recommends(Dependency::any("ca-certificates"));
    for name in rpm_dependencies(&package.linkage) {
        builder.requires(Dependency::any(name));
    }
    add_files(&mut builder, package)?;
    add_scripts(&mut builder, package);
    let mut bytes = Vec::new();
    let built = builder.build().with_context(|| format!("build the package {}", package.name))?;
    built.write(&mut bytes).with_context(|| format!("write the package {}", package.name))?;
    Ok(bytes)
}

fn add_files(builder: &mut PackageBuilder, package: &Package) -> Result<()> {
    for (path, entry) in package.files.entries() {
        let mode = u16::try_from(entry.mode)?;
        let absolute = format!("/{path}");
        if let Some(content) = &entry.content {
            let options = FileOptions::new(absolute).permissions(mode);
            let options = match path.strip_prefix(DOCUMENTATION) {
                Some(name) if name.ends_with("/LICENSE") => options.license(),
                Some(_) => options.doc(),
                None => options,
            };
            builder.with_file_contents(content.to_vec(), options)?;
        } else if path.split('/').any(|part| part == package.name) {
            // Other folders belong to the distribution.
            builder.with_dir_entry(FileOptions::dir(absolute).permissions(mode))?;
        }
    }
    Ok(())
}

/// `$1` is the number of versions that are installed afterwards.
fn add_scripts(builder: &mut PackageBuilder, package: &Package) {
    let (after_install, before_remove) = (package.after_install(), package.before_remove());
    if !after_install.is_empty() {
        builder.post_install_script(after_install);
    }
    if !before_remove.is_empty() {
        builder.pre_uninstall_script(format!("[ \"$1\" -eq 0 ] || exit 0\n{before_remove}"));
    }
    if !package.after_remove().is_empty() {
        builder.post_uninstall_script(package.after_remove());
    }
}
