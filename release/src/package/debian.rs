//! Packages of Debian (deb(5)): an archive of the format version, the control files and the files.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use ar::{Builder, Header};

use super::{Package, debian_dependencies};
use crate::file_tree::{FILE_MODE, FileTree, PROGRAM_MODE};
use crate::source::Source;

/// Condition of maintainer scripts: the files were not installed below another root, where commands
/// would change the machine that runs dpkg.
const ON_THIS_ROOT: &str = "[ -z \"${DPKG_ROOT:-}\" ] || exit 0\n";
/// Length of a line of the description.
const LINE: usize = 78;

/// Builds a package for Debian.
///
/// # Errors
/// The program needs a library of an unknown package.
pub fn deb(package: &Package, source: &Source) -> Result<Vec<u8>> {
    let mut control = FileTree::default();
    control.add_file("control", FILE_MODE, description(package, source)?);
    for (name, action, commands) in [
        ("postinst", "configure", package.after_install()),
        ("prerm", "remove", package.before_remove()),
        ("postrm", "remove", package.after_remove().to_owned()),
    ] {
        if !commands.is_empty() {
            let script = format!(
                "#!/bin/sh\nset -e\n{ON_THIS_ROOT}[ \"$1\" = {action} ] || exit 0\n{commands}"
            );
            control.add_file(name, PROGRAM_MODE, script);
        }
    }
    let members = [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", control.tar_gz(source.time)?),
        ("data.tar.gz", package.files.tar_gz(source.time)?),
    ];
    let mut archive = Builder::new(Vec::new());
    for (name, content) in members {
        let mut header = Header::new(name.as_bytes().to_vec(), u64::try_from(content.len())?);
        header.set_mode(0o100_644);
        header.set_mtime(u64::from(source.time));
        archive.append(&header, content.as_slice()).with_context(|| format!("archive {name}"))?;
    }
    archive.into_inner().context("finish a package")
}

/// Returns the file `control` (deb-control(5)).
fn description(package: &Package, source: &Source) -> Result<String> {
    let Package { name, section, summary, arch, .. } = package;
    let bytes: usize = package.files.files().map(|(_, content)| content.len()).sum();
    let mut control = format!(
        "Package: {name}\n\
         Version: {}\n\
         Architecture: {}\n\
         Maintainer: The authors of kubectl-tenant <{repository}>\n\
         Installed-Size: {}\n",
        source.package_version(),
        arch.name(),
        bytes.div_ceil(1024),
        repository = source.repository,
    );
    let dependencies = debian_dependencies(&package.linkage)?;
    if !dependencies.is_empty() {
        writeln!(control, "Depends: {}", dependencies.join(", "))?;
    }
    write!(
        control,
        "Recommends: ca-certificates\n\
         Section: {section}\n\
         Priority: optional\n\
         Homepage: {}\n\
         Description: {summary}\n",
        source.repository
    )?;
    for line in wrap(package.description) {
        writeln!(control, " {line}")?;
    }
    Ok(control)
}

/// Breaks a paragraph into lines.
fn wrap(paragraph: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in paragraph.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= LINE => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::package::tests::package;

    #[test]
    fn the_control_file_has_all_fields() {
        assert_eq!(
            description(&package(), &Source::example("1.2.3-rc.1")).unwrap(),
            "Package: tenant-broker\n\
             Version: 1.2.3~rc.1\n\
             Architecture: amd64\n\
             Maintainer: The authors of kubectl-tenant <https://example.com/owner/name>\n\
             Installed-Size: 1\n\
             Depends: libc6 (>= 2.34), libgcc-s1\n\
             Recommends: ca-certificates\n\
             Section: admin\n\
             Priority: optional\n\
             Homepage: https://example.com/owner/name\n\
             Description: summary\n \
             A description that is long enough to be broken into two lines, because it has\n \
             more than eighty letters.\n"
        );
    }

    #[test]
    fn two_packages_of_the_same_files_are_equal() {
        let deb = deb(&package(), &Source::example("1.2.3-rc.1")).unwrap();
        assert!(deb.starts_with(b"!<arch>\ndebian-binary   1767225600  0     0     100644  4 "));
        assert_eq!(deb, super::deb(&package(), &Source::example("1.2.3-rc.1")).unwrap());
    }
}
