//! The systemd unit: systemd's own tools accept and rate it, and the broker becomes ready with its
//! files, file modes, environment and command.
//!
//! The sandbox itself is not tested, because these tests run where systemd may not be the init
//! system.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::Duration;

use integration::authority;
use integration::machine;
use integration::postgres::Postgres;
use integration::process::{Finished, Program};
use integration::scratch::Scratch;

use super::cluster::Cluster;
use super::place::{Access, Environment, PROGRAM, Place};
use super::{deploy, read};

/// Highest exposure that is accepted, in tenths. It is 11 with systemd 252; other versions rate a
/// little differently.
const MAX_EXPOSURE: &str = "15";
/// The folder of the unit's credentials (`%d`).
const CREDENTIALS: &str = "/run/credentials/tenant-broker.service";

/// The directives of the unit's section `[Service]`.
struct Service(Vec<(String, String)>);

impl Service {
    /// Reads the unit and drop-ins. An empty value removes the values before it, as in systemd.
    fn read(files: &[&str]) -> Self {
        let mut directives: Vec<(String, String)> = Vec::new();
        for file in files {
            let text = read(&deploy("systemd").join(file));
            let (_, section) = text.split_once("\n[Service]\n").unwrap();
            for line in section.lines().take_while(|line| !line.starts_with('[')) {
                if line.is_empty() || line.starts_with('#') {
                    continue;
                }
                let (key, value) = line.split_once('=').unwrap();
                if value.is_empty() {
                    directives.retain(|(there, _)| there != key);
                } else {
                    directives.push((key.to_owned(), value.to_owned()));
                }
            }
        }
        Self(directives)
    }

    fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(there, _)| there == key).map(|(_, value)| value.as_str())
    }

    fn only(&self, key: &str) -> &str {
        let values: Vec<&str> =
            self.0.iter().filter(|one| one.0 == key).map(|one| one.1.as_str()).collect();
        let &[value] = values.as_slice() else { panic!("{key}: {values:?}") };
        value
    }

    fn command(&self) -> Vec<&str> {
        self.only("ExecStart").split(' ').collect()
    }

    fn environment(&self) -> Environment {
        let unset: Vec<&str> =
            self.all("UnsetEnvironment").flat_map(str::split_whitespace).collect();
        let set = self.all("Environment").map(|variable| variable.split_once('=').unwrap());
        let set = set.filter(|(name, _)| !unset.contains(name));
        set.map(|(name, value)| (name.to_owned(), value.replace("%d", CREDENTIALS))).collect()
    }
}

async fn run(program: &str, args: &[&str]) -> Finished {
    let program = machine::find(program).unwrap_or_else(|| {
        panic!("{program} is not on PATH; this test needs Linux with it: apt-get install systemd")
    });
    Program::new(program)
        .args(args)
        // No pager and no colors.
        .env("SYSTEMD_PAGER", "")
        .env("SYSTEMD_COLORS", "0")
        .run(Duration::from_secs(30))
        .await
        .unwrap()
}

fn path(file: &Path) -> &str {
    file.to_str().unwrap()
}

/// Writes the unit with a drop-in, and with a program that exists here.
fn installed(scratch: &Scratch, more: &str) -> std::path::PathBuf {
    let unit = scratch.path().join("tenant-broker.service");
    let text = read(&deploy("systemd/tenant-broker.service"));
    assert_eq!(text.matches(PROGRAM).count(), 1);
    std::fs::write(&unit, text.replace(PROGRAM, "/bin/true") + more).unwrap();
    let folder = scratch.path().join("tenant-broker.service.d");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::copy(deploy("systemd/sqlite.conf"), folder.join("sqlite.conf")).unwrap();
    unit
}

#[tokio::test]
async fn systemd_knows_every_directive_of_the_unit_and_of_its_drop_in() {
    let scratch = Scratch::new("systemd").unwrap();
    let unit = installed(&scratch, "");
    let verified = run("systemd-analyze", &["verify", path(&unit)]).await;
    assert_eq!(verified.code(), 0, "{}", verified.stderr);
    // Other lines are about units of this machine.
    assert!(!verified.stderr.contains("tenant-broker.service"), "{}", verified.stderr);

    // Otherwise the test could not fail.
    let unit = installed(&scratch, "NoSuchDirective=yes\n");
    let verified = run("systemd-analyze", &["verify", path(&unit)]).await;
    assert!(verified.stderr.contains("NoSuchDirective"), "{}", verified.stderr);
}

#[tokio::test]
async fn the_exposure_of_the_unit_is_low() {
    let unit = deploy("systemd/tenant-broker.service");
    let threshold = format!("--threshold={MAX_EXPOSURE}");
    let rate = async |unit: &Path| {
        let args = ["security", "--offline=true", "--no-pager", &threshold, path(unit)];
        run("systemd-analyze", &args).await
    };
    let rated = rate(&unit).await;
    assert_eq!(rated.code(), 0, "{}{}", rated.stdout, rated.stderr);

    // Otherwise the test could not fail.
    let scratch = Scratch::new("systemd").unwrap();
    let open = scratch.path().join("open.service");
    std::fs::write(&open, "[Service]\nExecStart=/bin/true\n").unwrap();
    assert_ne!(rate(&open).await.code(), 0);
}

#[tokio::test]
async fn systemd_sysusers_knows_the_user() {
    let scratch = Scratch::new("systemd").unwrap();
    std::fs::create_dir(scratch.path().join("etc")).unwrap();
    let root = format!("--root={}", path(scratch.path()));
    let file = deploy("systemd/tenant-broker.sysusers.conf");
    let made = run("systemd-sysusers", &["--dry-run", &root, path(&file)]).await;
    assert_eq!(made.code(), 0, "{}", made.stderr);
    let user = Service::read(&["tenant-broker.service"]).only("User").to_owned();
    assert!(read(&file).lines().any(|line| line.starts_with(&format!("u {user} -"))));
}

#[tokio::test]
async fn systemd_tmpfiles_restricts_the_folder_of_the_keys() {
    let scratch = Scratch::new("systemd").unwrap();
    let etc = scratch.path().join("etc");
    let folder = etc.join("tenant-broker");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
    // Only root can give a file to others, so root and the group of the broker are those of the test.
    let metadata = folder.metadata().unwrap();
    let (uid, gid) = (metadata.uid(), metadata.gid());
    std::fs::write(etc.join("passwd"), format!("root:x:{uid}:{gid}::/:/bin/sh\n")).unwrap();
    std::fs::write(etc.join("group"), format!("tenant-broker:x:{gid}:\n")).unwrap();
    let root = format!("--root={}", path(scratch.path()));
    let file = deploy("systemd/tenant-broker.tmpfiles.conf");
    let made = run("systemd-tmpfiles", &["--create", &root, path(&file)]).await;
    assert_eq!(made.code(), 0, "{}", made.stderr);
    let metadata = folder.metadata().unwrap();
    assert_eq!(metadata.permissions().mode() & 0o777, 0o750);
}

/// Writes the files of an installation as the documentation says, and the credentials as systemd
/// does.
fn install(place: &Place, cluster: &Cluster, service: &Service, database_url: &str) {
    let serving = cluster.control_plane.authority().server("tenant-broker").unwrap();
    let etc = |file: &str| format!("/etc/tenant-broker/{file}");
    for (file, text, access) in [
        ("tls.crt", serving.certificate, Access::Group),
        ("tls.key", serving.key, Access::Group),
        ("broker.kubeconfig", cluster.kubeconfig_of_broker().unwrap(), Access::Group),
        ("database-url", database_url.to_owned(), Access::Root),
        ("issuer-key.pem", authority::signing_key().unwrap().0, Access::Root),
    ] {
        place.write(&etc(file), text, access).unwrap();
    }
    for credential in service.all("LoadCredential") {
        let (name, source) = credential.split_once(':').unwrap();
        let text = read(&place.path(source));
        place.write(&format!("{CREDENTIALS}/{name}"), text, Access::Broker).unwrap();
    }
}

/// The settings for `sqlite.conf`, as its comment says.
fn without_database_and_issuer(settings: &str) -> String {
    let mut table: toml::Table = settings.parse().unwrap();
    assert!(table.remove("database").is_some() && table.remove("issuer").is_some());
    toml::to_string(&table).unwrap()
}

#[tokio::test]
async fn the_broker_of_the_unit_becomes_ready() {
    let cluster = Cluster::shared().await.unwrap();
    let authority = cluster.control_plane.authority().certificate().to_owned();
    let database = Postgres::shared().await.unwrap().database("systemd").await.unwrap();
    for drop_in in [None, Some("sqlite.conf")] {
        let files: Vec<&str> = ["tenant-broker.service"].into_iter().chain(drop_in).collect();
        let service = Service::read(&files);
        let place = Place::new(&cluster.binaries).unwrap();
        install(&place, &cluster, &service, database.url().as_str());
        let mut settings = place.mapped(&read(&deploy("systemd/broker.toml")));
        if drop_in.is_some() {
            settings = without_database_and_issuer(&settings);
        }
        let file = "/etc/tenant-broker/broker.toml";
        place.write(file, settings, Access::Group).unwrap();
        let installed = cluster.install(&place.path(file)).await.unwrap();

        let broker = place.serve(&service.command(), &service.environment()).await.unwrap();
        let issuer = broker.issuer(Some(&authority)).await.unwrap();
        assert_eq!(issuer, "https://tenants.example.com:8443");
        broker.stop().await.unwrap();
        let state = broker.place().path("/var/lib/tenant-broker");
        assert_eq!(state.join("broker.db").exists(), drop_in.is_some());
        drop(installed);
    }
}
