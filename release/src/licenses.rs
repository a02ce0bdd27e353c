//! The license list of a program or of the image: every package with its license, and the texts.
//!
//! Texts come from the packages themselves, notices included, because the Apache license (section
//! 4d) and MIT want the packages' own copyright lines. A package without such a file gets the text
//! of the SPDX list.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use spdx::{AdditionItem, Expression, ParseMode};

use crate::c_library::SystemPackage;
use crate::dependencies::{Dependencies, Package};

/// Beginnings of the names of license files, in upper case.
const NAMES: [&str; 6] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];
/// Endings of files that have such a name and are no text.
const NO_TEXTS: [&str; 6] = ["rs", "toml", "json", "yml", "yaml", "sh"];
/// Maximum size of a license file.
const MAX_TEXT_BYTES: u64 = 1024 * 1024;
/// Line between two sections.
const RULE: &str =
    "================================================================================";

/// Writes the list for a program; for the image with packages of the system it was built on and the
/// root certificates.
///
/// # Errors
/// A license file cannot be read, or a license is no SPDX expression.
pub fn list(
    title: &str,
    dependencies: &Dependencies,
    image: Option<&BTreeSet<SystemPackage>>,
) -> Result<String> {
    let mut list = List::default();
    for (id, package) in dependencies.linked.iter().filter(|(_, package)| !package.ours) {
        list.add_package(&format!("{} {}", id.name, id.version), package)?;
    }
    let rust = format!("Rust standard library {}", dependencies.rust);
    list.add_by_expression(&rust, "MIT OR Apache-2.0")?;
    if let Some(version) = &dependencies.sqlite {
        list.add_by_expression(&format!("SQLite {version}"), "blessing")?;
    }
    if let Some(packages) = image {
        let (id, roots) = &dependencies.roots;
        list.add_package(&format!("{} {}", id.name, id.version), roots)?;
        for package in packages {
            let SystemPackage { name, version, distribution, license, .. } = package;
            let name = format!("{name} {version}, unchanged from {distribution}");
            list.add_by_expression(&name, license)?;
        }
    }
    list.write(title)
}

#[derive(Default)]
struct List {
    /// License expressions by package.
    packages: BTreeMap<String, String>,
    /// Packages by text.
    texts: BTreeMap<String, BTreeSet<String>>,
}

impl List {
    fn add_package(&mut self, name: &str, package: &Package) -> Result<()> {
        let files = license_files(&package.folder)?;
        if files.is_empty() {
            return self.add_by_expression(name, &package.license);
        }
        self.packages.insert(name.to_owned(), package.license.clone());
        for file in files {
            let bytes = std::fs::read(&file).with_context(|| format!("read {}", file.display()))?;
            self.add_text(name, &String::from_utf8_lossy(&bytes));
        }
        Ok(())
    }

    /// Adds a package with the texts of the SPDX list.
    fn add_by_expression(&mut self, name: &str, license: &str) -> Result<()> {
        self.packages.insert(name.to_owned(), license.to_owned());
        let expression = Expression::parse_mode(license, ParseMode::LAX).with_context(|| {
            format!("the license of {name}, {license:?}, is no SPDX expression")
        })?;
        for requirement in expression.requirements() {
            if let Some(id) = requirement.req.license.id() {
                self.add_text(name, id.text());
            }
            let addition = requirement.req.addition.as_ref().and_then(AdditionItem::id);
            if let Some(exception) = addition {
                self.add_text(name, exception.text());
            }
        }
        Ok(())
    }

    fn add_text(&mut self, name: &str, text: &str) {
        let lines: Vec<&str> = text.trim().lines().map(str::trim_end).collect();
        self.texts.entry(lines.join("\n")).or_default().insert(name.to_owned());
    }

    fn write(self, title: &str) -> Result<String> {
        let mut list = format!(
            "{title} contains software of others. First comes the list of packages with their\n\
             licenses (SPDX), then each text with the packages that it belongs to.\n\n{RULE}\n\n"
        );
        for (package, license) in &self.packages {
            writeln!(list, "{package}: {license}")?;
        }
        // By first package, so that a new version of one package changes few lines.
        let mut texts: Vec<_> = self.texts.into_iter().collect();
        texts.sort_by(|one, other| (&one.1, &one.0).cmp(&(&other.1, &other.0)));
        for (text, packages) in texts {
            let packages: Vec<String> = packages.into_iter().collect();
            write!(list, "\n{RULE}\n\n{}\n\n{text}\n", packages.join("\n"))?;
        }
        Ok(list)
    }
}

/// Finds the license files of a package, sorted by name.
fn license_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let entries =
        std::fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))?;
    for entry in entries {
        let path = entry.with_context(|| format!("list {}", folder.display()))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        let extension = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
        let is_text = path.metadata().is_ok_and(|data| data.len() <= MAX_TEXT_BYTES)
            && !NO_TEXTS.contains(&extension.as_str());
        if !NAMES.iter().any(|start| name.starts_with(start)) {
            continue;
        }
        if path.is_dir() {
            files.extend(texts_in(&path)?);
        } else if is_text {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// All files of a folder such as `LICENSES`.
fn texts_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries =
        std::fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))?;
    let paths = entries.flatten().map(|entry| entry.path());
    Ok(paths
        .filter(|path| {
            path.metadata().is_ok_and(|data| data.is_file() && data.len() <= MAX_TEXT_BYTES)
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(folder: &Path, license: &str) -> Package {
        Package {
            license: license.to_owned(),
            repository: None,
            folder: folder.to_owned(),
            ours: false,
            checksum: None,
            needs: BTreeSet::new(),
        }
    }

    #[test]
    fn equal_texts_are_printed_once_with_their_packages() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("one/LICENSE-MIT", "the text\n");
        write("one/NOTICE.md", "a notice\n");
        write("one/license.rs", "fn main() {}\n");
        write("two/LICENSES/MIT.txt", "the text  \n\n");
        let mut list = List::default();
        list.add_package("one 1.0.0", &package(&folder.path().join("one"), "MIT")).unwrap();
        list.add_package("two 2.0.0", &package(&folder.path().join("two"), "MIT")).unwrap();
        let text = list.write("A program").unwrap();
        assert!(text.contains("one 1.0.0: MIT\ntwo 2.0.0: MIT\n"), "{text}");
        assert!(text.contains("one 1.0.0\ntwo 2.0.0\n\nthe text\n"), "{text}");
        assert!(text.contains("one 1.0.0\n\na notice\n"), "{text}");
        assert_eq!(text.matches("the text").count(), 1);
        assert!(!text.contains("fn main"));
    }

    #[test]
    fn a_package_without_a_license_file_gets_the_text_of_its_expression() {
        let folder = tempfile::tempdir().unwrap();
        let mut list = List::default();
        let license = "GPL-3.0-or-later WITH GCC-exception-3.1";
        list.add_package("libgcc-s1 12", &package(folder.path(), license)).unwrap();
        let text = list.write("The image").unwrap();
        assert!(text.contains("GNU GENERAL PUBLIC LICENSE"), "{text}");
        assert!(text.contains("GCC RUNTIME LIBRARY EXCEPTION"), "{text}");
        assert!(list_error(folder.path()).contains("is no SPDX expression"));
    }

    fn list_error(folder: &Path) -> String {
        let unknown = package(folder, "Proprietary");
        List::default().add_package("x 1", &unknown).unwrap_err().to_string()
    }
}
