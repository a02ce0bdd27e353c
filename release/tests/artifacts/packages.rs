//! Packages of Debian, installed into a folder by dpkg, and of RPM, read back.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use integration::process::{Finished, Program};
use release::{BROKER, PLUGIN};

use crate::fixture::{Release, TOOL_TIMEOUT, tool};

/// Where both formats install the files of `deploy/systemd`.
const FILES_OF_SYSTEMD: [&str; 5] = [
    "usr/lib/systemd/system/tenant-broker.service",
    "usr/lib/sysusers.d/tenant-broker.conf",
    "usr/lib/tmpfiles.d/tenant-broker.conf",
    "usr/share/doc/tenant-broker/examples/broker.toml",
    "usr/share/doc/tenant-broker/examples/sqlite.conf",
];

/// A folder that dpkg installs into, with no package.
struct DebianRoot {
    dpkg: PathBuf,
    root: PathBuf,
}

impl DebianRoot {
    fn new(root: PathBuf) -> Self {
        for folder in ["info", "updates", "triggers"] {
            std::fs::create_dir_all(root.join("var/lib/dpkg").join(folder)).unwrap();
        }
        std::fs::write(root.join("var/lib/dpkg/status"), "").unwrap();
        Self { dpkg: tool("dpkg", "dpkg").unwrap(), root }
    }

    /// Runs dpkg; the packages of the shared libraries are missing in the folder.
    async fn run(&self, args: &[&str], file: Option<&Path>) -> Finished {
        Program::new(&self.dpkg)
            .arg(format!("--root={}", self.root.display()))
            .args(["--force-not-root", "--force-script-chrootless", "--force-depends"])
            .arg("--force-bad-path")
            .args(args)
            .args(file)
            .run(TOOL_TIMEOUT)
            .await
            .unwrap()
    }

    /// Returns a field of an installed package.
    async fn field(&self, package: &str, field: &str) -> String {
        Program::new(tool("dpkg-query", "dpkg").unwrap())
            .arg(format!("--admindir={}", self.root.join("var/lib/dpkg").display()))
            .args(["--show", &format!("--showformat=${{{field}}}"), package])
            .run(TOOL_TIMEOUT)
            .await
            .unwrap()
            .success()
            .unwrap()
            .stdout
    }

    fn has(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }
}

fn deb(release: &Release, name: &str) -> PathBuf {
    let arch = release.target.arch.name();
    release.folder().join(format!("{name}_{}_{arch}.deb", release.source.version))
}

#[tokio::test]
async fn dpkg_installs_and_removes_the_plugin() {
    let release = Release::shared().await;
    let root = DebianRoot::new(release.work_folder("deb-plugin"));
    root.run(&["--install"], Some(&deb(&release, PLUGIN))).await.success().unwrap();
    assert_eq!(root.field(PLUGIN, "Version").await, release.source.package_version());
    assert_eq!(root.field(PLUGIN, "Architecture").await, release.target.arch.name());
    let depends = root.field(PLUGIN, "Depends").await;
    assert!(depends.contains("libc6 (>= 2."), "{depends}");
    for path in [
        "usr/bin/kubectl_complete-tenant",
        "usr/share/bash-completion/completions/kubectl-tenant",
        "usr/share/zsh/vendor-completions/_kubectl-tenant",
        "usr/share/fish/vendor_completions.d/kubectl-tenant.fish",
        "usr/share/doc/kubectl-tenant/copyright",
        "usr/share/doc/kubectl-tenant/THIRD-PARTY-LICENSES.txt",
        "usr/share/man/man1/kubectl-tenant.1.gz",
        "usr/share/man/man1/kubectl-tenant-login.1.gz",
    ] {
        assert!(root.has(path), "{path} is missing");
    }
    // It runs as it was installed.
    let version = Program::new(root.root.join("usr/bin").join(PLUGIN)).arg("--version");
    let version = version.run(TOOL_TIMEOUT).await.unwrap().success().unwrap().stdout;
    assert_eq!(version.trim(), format!("{PLUGIN} {}", release.source.version));
    // The files are those of the package.
    let verified = root.run(&["--verify", PLUGIN], None).await.success().unwrap();
    assert_eq!(verified.stdout, "");

    root.run(&["--purge", PLUGIN], None).await.success().unwrap();
    assert!(!root.has("usr/bin/kubectl-tenant"));
}

#[tokio::test]
async fn dpkg_installs_and_removes_the_broker_without_touching_this_machine() {
    let release = Release::shared().await;
    let root = DebianRoot::new(release.work_folder("deb-broker"));
    let installed = root.run(&["--install"], Some(&deb(&release, BROKER))).await;
    installed.success().unwrap();
    assert!(root.has("usr/bin/tenant-broker") && root.has("etc/tenant-broker"));
    let settings = root.root.join("etc/tenant-broker").metadata().unwrap();
    assert_eq!(settings.permissions().mode() & 0o777, 0o750);
    for path in FILES_OF_SYSTEMD {
        assert!(root.has(path), "{path} is missing");
    }
    // All scripts stop at another root.
    for script in ["postinst", "prerm", "postrm"] {
        let path = root.root.join(format!("var/lib/dpkg/info/tenant-broker.{script}"));
        let text = std::fs::read_to_string(&path).unwrap();
        let third = text.lines().nth(2).unwrap();
        assert_eq!(third, "[ -z \"${DPKG_ROOT:-}\" ] || exit 0", "{script}");
        let check = Program::new("sh").arg("-n").arg(path);
        check.run(TOOL_TIMEOUT).await.unwrap().success().unwrap();
    }
    root.run(&["--purge", BROKER], None).await.success().unwrap();
    assert!(!root.has("usr/bin/tenant-broker"));
}

/// Reads a package of RPM: its metadata, and the content of its files by path.
fn rpm(release: &Release, name: &str) -> (rpm::PackageMetadata, BTreeMap<PathBuf, Vec<u8>>) {
    let machine = release.target.arch.machine();
    let bytes = release.read(&format!("{name}-{}-1.{machine}.rpm", release.source.version));
    let package = rpm::Package::parse(&mut bytes.as_slice()).unwrap();
    package.verify_digests().unwrap();
    let files = package
        .files()
        .unwrap()
        .map(|file| {
            let file = file.unwrap();
            (file.metadata.path(), file.into_content().unwrap_or_default())
        })
        .collect();
    (package.metadata, files)
}

#[tokio::test]
async fn rpm_packages_have_name_version_and_needs_of_their_programs() {
    let release = Release::shared().await;
    for name in [BROKER, PLUGIN] {
        let (metadata, _) = rpm(&release, name);
        assert_eq!(metadata.get_name().unwrap(), name);
        assert_eq!(metadata.get_version().unwrap(), release.source.package_version());
        assert_eq!(metadata.get_arch().unwrap(), release.target.arch.machine());
        assert_eq!(metadata.get_license().unwrap(), "Apache-2.0");
        assert_eq!(metadata.get_build_time().unwrap(), u64::from(release.source.time));
        let requires = metadata.get_requires().unwrap();
        let needs = |start: &str| requires.iter().any(|one| one.name.starts_with(start));
        assert!(needs("libc.so.6(GLIBC_2.") && needs("libc.so.6()(64bit)"), "{requires:?}");
    }
}

#[tokio::test]
async fn rpm_packages_have_the_files_of_the_release() {
    let release = Release::shared().await;
    let (_, files) = rpm(&release, PLUGIN);
    assert!(files[Path::new("/usr/bin/kubectl-tenant")] == release.plugin());
    for path in [
        "/usr/bin/kubectl_complete-tenant",
        "/usr/share/zsh/site-functions/_kubectl-tenant",
        "/usr/share/doc/kubectl-tenant/LICENSE",
        "/usr/share/man/man1/kubectl-tenant.1.gz",
    ] {
        assert!(files.contains_key(Path::new(path)), "{path} is missing");
    }
    // Folders of the distribution belong to its own packages.
    assert!(!files.contains_key(Path::new("/usr/bin")));
    let (_, files) = rpm(&release, BROKER);
    assert!(files[Path::new("/usr/bin/tenant-broker")] == release.broker());
    assert!(files.contains_key(Path::new("/etc/tenant-broker")));
    for path in FILES_OF_SYSTEMD {
        assert!(files.contains_key(&Path::new("/").join(path)), "{path} is missing");
    }
}
