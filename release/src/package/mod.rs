//! Packages of Debian and RPM: the files, dependencies and scripts that both formats share.

mod debian;
mod files;
mod redhat;

use anyhow::{Result, bail};

use crate::file_tree::FileTree;
use crate::linkage::Linkage;
use crate::target::Arch;

pub use debian::deb;
pub use files::{broker_files, plugin_files};
pub use redhat::rpm;

/// What a package of either format consists of.
#[derive(Clone, Debug)]
pub struct Package {
    /// Name of the package.
    pub name: &'static str,
    /// One line without a full stop.
    pub summary: &'static str,
    /// A paragraph.
    pub description: &'static str,
    /// Section of Debian's archive.
    pub section: &'static str,
    /// The architecture of the program.
    pub arch: Arch,
    /// The files.
    pub files: FileTree,
    /// What the program needs from the system.
    pub linkage: Linkage,
}

/// The format of a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Debian, Ubuntu and others.
    Deb,
    /// Fedora, Red Hat, SUSE and others.
    Rpm,
}

impl Package {
    /// Name of the systemd unit that the package installs.
    fn unit(&self) -> Option<&str> {
        self.installed_in("usr/lib/systemd/system/")
    }

    /// Name of the file with the accounts that the package needs (sysusers.d(5)).
    fn accounts(&self) -> Option<&str> {
        self.installed_in("usr/lib/sysusers.d/")
    }

    /// Name of the file with the permissions of folders (tmpfiles.d(5)).
    fn permissions(&self) -> Option<&str> {
        self.installed_in("usr/lib/tmpfiles.d/")
    }

    fn installed_in(&self, folder: &str) -> Option<&str> {
        self.files.files().find_map(|(path, _)| path.strip_prefix(folder))
    }

    /// Commands that run after the files are there. They start nothing, because a new installation
    /// has no configuration yet, and an upgrade may need `tenant-broker install` first.
    fn after_install(&self) -> String {
        let if_there = |program: &str, arguments: &str| {
            format!("if command -v {program} >/dev/null; then\n    {program} {arguments}\nfi\n")
        };
        let accounts = self.accounts().map(|file| if_there("systemd-sysusers", file));
        let permissions = self
            .permissions()
            .map(|file| if_there("systemd-tmpfiles", &format!("--create {file}")));
        let reload = self.unit().map(|_| RELOAD.to_owned());
        accounts.into_iter().chain(permissions).chain(reload).collect()
    }

    /// Commands that run before the files of a removed package go.
    fn before_remove(&self) -> String {
        let stop = self.unit().map(|unit| {
            format!("if [ -d /run/systemd/system ]; then\n    systemctl disable --now {unit}\nfi\n")
        });
        stop.unwrap_or_default()
    }

    /// Commands that run after the files are gone.
    fn after_remove(&self) -> &'static str {
        self.unit().map_or("", |_| RELOAD)
    }
}

/// Makes a running systemd read its units again.
const RELOAD: &str = "if [ -d /run/systemd/system ]; then\n    systemctl daemon-reload\nfi\n";

/// Returns Debian's names of the packages with the shared libraries, with the version of the C
/// library that is needed at least.
fn debian_dependencies(linkage: &Linkage) -> Result<Vec<String>> {
    let mut dependencies = Vec::new();
    for library in &linkage.libraries {
        let dependency = match library.as_str() {
            "libgcc_s.so.1" => "libgcc-s1".to_owned(),
            name if is_of_glibc(name) => {
                let (major, minor) = linkage.glibc().unwrap_or((2, 17));
                format!("libc6 (>= {major}.{minor})")
            }
            name => bail!("release/src/package/mod.rs knows no Debian package with {name}"),
        };
        if !dependencies.contains(&dependency) {
            dependencies.push(dependency);
        }
    }
    dependencies.sort();
    Ok(dependencies)
}

fn is_of_glibc(library: &str) -> bool {
    ["libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1"].contains(&library)
        || library.starts_with("ld-linux")
}

/// Returns RPM's names of the shared libraries and of their symbol versions; both architectures
/// have 64 bits.
fn rpm_dependencies(linkage: &Linkage) -> Vec<String> {
    let libraries = linkage.libraries.iter().map(|library| format!("{library}()(64bit)"));
    let versions =
        linkage.versions.iter().map(|(library, version)| format!("{library}({version})(64bit)"));
    libraries.chain(versions).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_tree::{FILE_MODE, PROGRAM_MODE};

    pub(super) fn linkage() -> Linkage {
        let version = |library: &str, version: &str| (library.to_owned(), version.to_owned());
        Linkage {
            loader: Some("/lib64/ld-linux-x86-64.so.2".to_owned()),
            libraries: ["libgcc_s.so.1", "libm.so.6", "libc.so.6"].map(str::to_owned).to_vec(),
            versions: [version("libc.so.6", "GLIBC_2.34"), version("libm.so.6", "GLIBC_2.29")]
                .into(),
            machine: 62,
        }
    }

    pub(super) fn package() -> Package {
        let mut files = FileTree::default();
        files.add_file("usr/bin/tenant-broker", PROGRAM_MODE, "program");
        files.add_file("usr/lib/systemd/system/tenant-broker.service", FILE_MODE, "[Service]\n");
        files.add_file("usr/lib/sysusers.d/tenant-broker.conf", FILE_MODE, "u tenant-broker -\n");
        files.add_file("usr/lib/tmpfiles.d/tenant-broker.conf", FILE_MODE, "z /etc\n");
        files.add_file("usr/share/doc/tenant-broker/LICENSE", FILE_MODE, "license");
        files.add_folder("etc/tenant-broker", 0o750, 0);
        Package {
            name: "tenant-broker",
            summary: "summary",
            description: "A description that is long enough to be broken into two lines, because \
                          it has more than eighty letters.",
            section: "admin",
            arch: Arch::Amd64,
            files,
            linkage: linkage(),
        }
    }

    #[test]
    fn dependencies_are_those_of_the_elf_headers() {
        assert_eq!(
            debian_dependencies(&linkage()).unwrap(),
            ["libc6 (>= 2.34)", "libgcc-s1"].map(str::to_owned)
        );
        let rpm = rpm_dependencies(&linkage());
        for expected in ["libc.so.6()(64bit)", "libc.so.6(GLIBC_2.34)(64bit)"] {
            assert!(rpm.iter().any(|name| name == expected), "{rpm:?}");
        }
        let unknown = Linkage { libraries: vec!["libssl.so.3".to_owned()], ..linkage() };
        assert!(debian_dependencies(&unknown).is_err());
    }

    #[test]
    fn scripts_exist_only_for_a_unit_and_for_accounts() {
        let package = package();
        let script = package.after_install();
        // The group has to exist before a folder belongs to it.
        let account = script.find("systemd-sysusers tenant-broker.conf").unwrap();
        let folder = script.find("systemd-tmpfiles --create tenant-broker.conf").unwrap();
        assert!(account < folder, "{script}");
        assert!(package.before_remove().contains("disable --now tenant-broker.service"));
        let without = Package { files: FileTree::default(), ..package };
        assert_eq!(without.after_install() + &without.before_remove(), "");
        assert_eq!(without.after_remove(), "");
    }
}
