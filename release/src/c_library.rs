//! The shared libraries of the build machine that a dynamic program needs in its image: the GNU C
//! library and GCC's unwinder. A static program needs none.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use integration::machine;
use integration::process::Program;

use crate::linkage::{self, Linkage};
use crate::target::Arch;

/// Time limit of a question to the package manager.
const PACKAGE_TIMEOUT: Duration = Duration::from_mins(1);
/// A function of the GNU C library 2.34 and later. Earlier versions load the DNS resolver from
/// another file, which the headers of a program do not name.
const DNS_IN_C_LIBRARY: &str = "_nss_dns_gethostbyname4_r";

/// Folders of libraries, with the folder for them in the image. The loader searches the folders of
/// its distribution, so both are the same, except for libraries for another architecture.
const FOLDERS: [(Arch, &str, &str); 9] = [
    (Arch::Amd64, "/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"),
    (Arch::Amd64, "/usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"),
    (Arch::Amd64, "/lib64", "lib64"),
    (Arch::Amd64, "/usr/lib64", "lib64"),
    (Arch::Arm64, "/lib/aarch64-linux-gnu", "lib/aarch64-linux-gnu"),
    (Arch::Arm64, "/usr/lib/aarch64-linux-gnu", "lib/aarch64-linux-gnu"),
    (Arch::Arm64, "/usr/aarch64-linux-gnu/lib", "lib/aarch64-linux-gnu"),
    (Arch::Arm64, "/lib64", "lib64"),
    (Arch::Arm64, "/usr/lib64", "lib64"),
];

/// A shared library or the loader, as the image contains it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// Path in the image, without a slash at the beginning.
    pub path: String,
    /// The file.
    pub content: Bytes,
    /// The package of the build machine that it comes from.
    pub package: SystemPackage,
}

/// A package of the build machine's distribution.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SystemPackage {
    /// Name of the package, for example `libc6`.
    pub name: String,
    /// Version of the package.
    pub version: String,
    /// Type of a package URL: `deb` or `rpm`.
    pub kind: &'static str,
    /// Identifier of the distribution (`ID` in os-release(5)).
    pub distribution: String,
    /// SPDX expression of the license of its libraries.
    pub license: &'static str,
}

/// Finds the loader and all libraries of a program, sorted by path in the image.
///
/// # Errors
/// A library is missing or belongs to no package, its license is not known here, or the C library
/// is older than 2.34.
pub async fn find(program: &[u8], arch: Arch) -> Result<Vec<Library>> {
    let needs = Linkage::read(program)?;
    let mut found = BTreeMap::new();
    let mut queue: VecDeque<String> = needs.libraries.clone().into();
    if let Some(loader) = &needs.loader {
        let file = locate_loader(loader, arch, needs.machine)?;
        add(&mut found, loader.trim_start_matches('/').to_owned(), &file).await?;
    }
    while let Some(name) = queue.pop_front() {
        // The C library names the loader among its libraries.
        if found.keys().any(|path: &String| path.ends_with(&format!("/{name}"))) {
            continue;
        }
        let (file, folder) = locate(&name, arch, needs.machine)
            .with_context(|| format!("the program needs {name}, which no folder has"))?;
        let library = add(&mut found, format!("{folder}/{name}"), &file).await?;
        if name == "libc.so.6" {
            ensure!(
                linkage::defines(&library, DNS_IN_C_LIBRARY)?,
                "{} is older than the GNU C library 2.34 and needs further files for DNS; build on \
                 a newer system or for a musl target",
                file.display()
            );
        }
        queue.extend(Linkage::read(&library)?.libraries);
    }
    Ok(found.into_values().collect())
}

async fn add(found: &mut BTreeMap<String, Library>, path: String, file: &Path) -> Result<Bytes> {
    let content = std::fs::read(file).with_context(|| format!("read {}", file.display()))?;
    let content = Bytes::from(content);
    let name = path.rsplit('/').next().unwrap_or_default();
    let license = license(name).with_context(|| {
        format!("the program needs {name}, whose license release/src/c_library.rs does not know")
    })?;
    let package = package_of(file, license).await?;
    found.insert(path.clone(), Library { path, content: content.clone(), package });
    Ok(content)
}

/// Returns the license of a library as an SPDX expression.
fn license(library: &str) -> Option<&'static str> {
    let of_glibc = ["libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1"];
    match library {
        "libgcc_s.so.1" => Some("GPL-3.0-or-later WITH GCC-exception-3.1"),
        name if of_glibc.contains(&name) || name.starts_with("ld-linux") => {
            Some("LGPL-2.1-or-later")
        }
        _ => None,
    }
}

/// Finds the loader at its own path, or among the libraries for another architecture.
fn locate_loader(loader: &str, arch: Arch, machine: u16) -> Result<PathBuf> {
    let own = PathBuf::from(loader);
    if is_for(&own, machine) {
        return Ok(own);
    }
    let name = loader.rsplit('/').next().unwrap_or_default();
    let (file, _) = locate(name, arch, machine)
        .with_context(|| format!("the program needs the loader {loader}, which no folder has"))?;
    Ok(file)
}

/// Returns a library's file and its folder in the image.
fn locate(name: &str, arch: Arch, machine: u16) -> Option<(PathBuf, &'static str)> {
    FOLDERS.iter().filter(|(of_arch, ..)| *of_arch == arch).find_map(|(_, folder, in_image)| {
        let file = Path::new(folder).join(name);
        is_for(&file, machine).then_some((file, *in_image))
    })
}

fn is_for(file: &Path, machine: u16) -> bool {
    let bytes = std::fs::read(file).unwrap_or_default();
    Linkage::read(&bytes).is_ok_and(|linkage| linkage.machine == machine)
}

/// Asks the package manager which package a file belongs to.
async fn package_of(file: &Path, license: &'static str) -> Result<SystemPackage> {
    // `/lib` is a link to `/usr/lib`; package managers know a file by one of its paths.
    let text = file.display().to_string();
    let other = text.strip_prefix("/usr").map_or_else(|| format!("/usr{text}"), str::to_owned);
    let resolved = file.canonicalize().unwrap_or_default().display().to_string();
    for path in [text.as_str(), other.as_str(), resolved.as_str()] {
        let package = match (machine::find("dpkg-query"), machine::find("rpm")) {
            (Some(query), _) => debian_package(&query, path).await?,
            (None, Some(rpm)) => rpm_package(&rpm, path).await?,
            (None, None) => None,
        };
        if let Some((kind, name, version)) = package {
            let distribution = distribution();
            return Ok(SystemPackage { name, version, kind, distribution, license });
        }
    }
    bail!(
        "no package of this machine has {text}, so its version for the license list is unknown; \
         build on Debian, Fedora or a system like them, or for a musl target"
    )
}

async fn debian_package(
    query: &Path,
    path: &str,
) -> Result<Option<(&'static str, String, String)>> {
    let owner = Program::new(query).args(["--search", path]).run(PACKAGE_TIMEOUT).await?;
    let suffix = format!(": {path}");
    let Some(package) = owner.stdout.lines().find_map(|line| line.strip_suffix(&suffix)) else {
        return Ok(None);
    };
    let format = "--showformat=${Package} ${Version}";
    let shown = Program::new(query).args(["--show", format, package]).run(PACKAGE_TIMEOUT).await?;
    let shown = shown.success()?;
    let (name, version) =
        shown.stdout.trim().split_once(' ').context("read dpkg-query's output")?;
    Ok(Some(("deb", name.to_owned(), version.to_owned())))
}

async fn rpm_package(rpm: &Path, path: &str) -> Result<Option<(&'static str, String, String)>> {
    let format = "--queryformat=%{NAME} %{VERSION}-%{RELEASE}\\n";
    let shown =
        Program::new(rpm).args(["--query", "--file", format, path]).run(PACKAGE_TIMEOUT).await?;
    if !shown.status.success() {
        return Ok(None);
    }
    let line = shown.stdout.lines().next().context("rpm printed nothing")?;
    let (name, version) = line.split_once(' ').context("read rpm's output")?;
    Ok(Some(("rpm", name.to_owned(), version.to_owned())))
}

/// Returns the identifier of this machine's distribution, as os-release(5) defines it.
fn distribution() -> String {
    let text = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let id = text.lines().find_map(|line| line.strip_prefix("ID="));
    id.map_or_else(|| "linux".to_owned(), |id| id.trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64"))]
    #[tokio::test]
    async fn the_libraries_of_a_program_come_from_packages_of_this_machine() {
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let libraries = find(&program, Arch::Amd64).await.unwrap();
        let loader = libraries.iter().find(|one| one.path.contains("ld-linux")).unwrap();
        assert_eq!(loader.path, "lib64/ld-linux-x86-64.so.2");
        let c_library = libraries.iter().find(|one| one.path.ends_with("/libc.so.6")).unwrap();
        assert_eq!(c_library.package.license, "LGPL-2.1-or-later");
        assert!(!c_library.package.version.is_empty());
        assert_eq!(c_library.package, loader.package);
        let paths: Vec<&String> = libraries.iter().map(|library| &library.path).collect();
        assert!(paths.is_sorted(), "{paths:?}");
    }

    #[test]
    fn a_library_of_unknown_license_is_refused() {
        assert_eq!(license("libssl.so.3"), None);
        assert_eq!(license("libgcc_s.so.1"), Some("GPL-3.0-or-later WITH GCC-exception-3.1"));
    }

    #[test]
    fn a_library_for_another_processor_is_not_found() {
        let machine_without_libraries = 0;
        assert_eq!(locate("libc.so.6", Arch::Amd64, machine_without_libraries), None);
    }
}
