//! The image: its documents, and the broker that runs from it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use flate2::read::GzDecoder;
use integration::authority;
use integration::http_client::http_client;
use integration::port;
use integration::postgres::Postgres;
use integration::probe::{self, Probe};
use integration::process::Process;
use oci_spec::image::{ImageConfiguration, ImageIndex, ImageManifest, MediaType, OciLayout, Os};
use release::BROKER;
use release::digest::sha256;
use release::image::{PROGRAM, USER};

use crate::container::{Container, Isolation, SETTINGS_FOLDER, mount_options, user_of};
use crate::fixture::Release;

/// Maximum size of the layer with the files of the system, in bytes. `cargo make-release` checks the
/// size of the whole image; the broker of the tests is larger than that of a release.
const MAX_SYSTEM_LAYER: u64 = 5_000_000;
/// Time limit for the broker to become ready, its migrations included.
const READY_TIMEOUT: Duration = Duration::from_mins(1);
/// Time limit for the broker to end after SIGTERM.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
/// Number of attempts with other ports.
const MAX_PORT_ATTEMPTS: u32 = 5;
/// A cluster that nothing serves: the broker starts without one.
const NOWHERE: &str = r#"{"apiVersion": "v1", "kind": "Config", "current-context": "c",
  "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
  "users": [{"name": "c", "user": {"token": "t"}}],
  "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}]}"#;

/// The parts of an image layout.
struct Image {
    files: BTreeMap<String, Vec<u8>>,
    index: ImageIndex,
    manifest: ImageManifest,
    configuration: ImageConfiguration,
}

impl Image {
    fn read(release: &Release) -> Self {
        let tar = release.read(&format!("{}.oci.tar", release.stem(BROKER)));
        let mut archive = tar::Archive::new(tar.as_slice());
        let files: BTreeMap<String, Vec<u8>> = archive
            .entries()
            .unwrap()
            .map(|entry| {
                let mut entry = entry.unwrap();
                let mut content = Vec::new();
                entry.read_to_end(&mut content).unwrap();
                (entry.path().unwrap().display().to_string(), content)
            })
            .collect();
        let index = ImageIndex::from_reader(files["index.json"].as_slice()).unwrap();
        let manifest = blob(&files, index.manifests()[0].digest().digest());
        let manifest = ImageManifest::from_reader(manifest).unwrap();
        let configuration = blob(&files, manifest.config().digest().digest());
        let configuration = ImageConfiguration::from_reader(configuration).unwrap();
        Self { files, index, manifest, configuration }
    }

    /// The layers as tar streams.
    fn layers(&self) -> Vec<Vec<u8>> {
        let layers = self.manifest.layers().iter().map(|layer| {
            let mut tar = Vec::new();
            let compressed = blob(&self.files, layer.digest().digest());
            GzDecoder::new(compressed).read_to_end(&mut tar).unwrap();
            tar
        });
        layers.collect()
    }

    fn unpack(&self, container: &Container) {
        for layer in self.layers() {
            let mut archive = tar::Archive::new(layer.as_slice());
            archive.set_preserve_permissions(true);
            archive.set_preserve_ownerships(container.isolation == Isolation::Root);
            archive.unpack(&container.root).unwrap();
        }
    }

    fn environment(&self) -> Vec<String> {
        self.configuration.config().as_ref().unwrap().env().clone().unwrap_or_default()
    }
}

fn blob<'a>(files: &'a BTreeMap<String, Vec<u8>>, digest: &str) -> &'a [u8] {
    &files[&format!("blobs/sha256/{digest}")]
}

#[tokio::test]
async fn the_layout_follows_the_specification() {
    let release = Release::shared().await;
    let image = Image::read(&release);
    let layout = OciLayout::from_reader(image.files["oci-layout"].as_slice()).unwrap();
    assert_eq!(layout.image_layout_version(), "1.0.0");

    let manifests = image.index.manifests();
    assert_eq!(manifests.len(), 1);
    let platform = manifests[0].platform().as_ref().unwrap();
    assert_eq!(*platform.os(), Os::Linux);
    assert_eq!(*platform.architecture(), release.target.arch.oci());
    let descriptors = [&manifests[0], image.manifest.config()];
    for descriptor in descriptors.into_iter().chain(image.manifest.layers()) {
        let content = blob(&image.files, descriptor.digest().digest());
        assert_eq!(sha256(content), descriptor.digest().digest());
        assert_eq!(content.len() as u64, descriptor.size());
    }
    let blobs = image.files.keys().filter(|path| path.starts_with("blobs/sha256/"));
    // The folder itself, manifest, configuration and two layers.
    assert_eq!(blobs.count(), 5);

    let diff_ids: Vec<String> =
        image.layers().iter().map(|layer| format!("sha256:{}", sha256(layer))).collect();
    assert_eq!(image.configuration.rootfs().diff_ids(), &diff_ids);
    let layers = image.manifest.layers();
    assert!(layers.iter().all(|layer| *layer.media_type() == MediaType::ImageLayerGzip));
    assert!(layers[0].size() < MAX_SYSTEM_LAYER, "{}", layers[0].size());
}

#[tokio::test]
async fn the_configuration_says_how_to_run_it() {
    let release = Release::shared().await;
    let image = Image::read(&release);
    let config = image.configuration.config().as_ref().unwrap();
    assert_eq!(config.user().as_deref(), Some("65532:65532"));
    assert_eq!(config.entrypoint().as_deref(), Some(&[PROGRAM.to_owned()][..]));
    assert_eq!(config.cmd().as_deref(), Some(&["serve".to_owned()][..]));
    let ports: BTreeSet<String> = config.exposed_ports().clone().unwrap().into_iter().collect();
    assert_eq!(ports, ["8080/tcp", "8081/tcp"].map(str::to_owned).into());
    assert_eq!(config.volumes().as_deref(), Some(&["/var/lib/tenant-broker".to_owned()][..]));
    let labels = image.configuration.labels_of_config().unwrap();
    assert_eq!(labels["org.opencontainers.image.version"], release.source.version.to_string());
    assert_eq!(labels["org.opencontainers.image.revision"], release.source.commit);
    assert_eq!(labels["org.opencontainers.image.licenses"], "Apache-2.0");
    assert_eq!(image.manifest.annotations().as_ref(), Some(labels));
}

#[tokio::test]
async fn the_files_are_only_what_the_broker_needs() {
    let release = Release::shared().await;
    let image = Image::read(&release);
    let mut programs = Vec::new();
    for layer in image.layers() {
        let mut archive = tar::Archive::new(layer.as_slice());
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().display().to_string();
            let header = entry.header().clone();
            let mode = header.mode().unwrap();
            assert_eq!(mode & 0o6000, 0, "{path} changes the user");
            assert!([0, u64::from(USER)].contains(&header.uid().unwrap()), "{path}");
            assert_eq!(header.mtime().unwrap(), u64::from(release.source.time), "{path}");
            assert!(header.username_bytes().is_none_or(<[u8]>::is_empty), "{path}");
            let only_state = path.starts_with("var/lib/tenant-broker") || path.starts_with("tmp");
            assert!(mode & 0o022 == 0 || only_state, "{path} can be written to: {mode:o}");
            let mut start = Vec::new();
            entry.by_ref().take(4).read_to_end(&mut start).unwrap();
            if start == b"\x7fELF" && !path.contains(".so") {
                programs.push(format!("/{path}"));
            }
            assert!(!start.starts_with(b"#!"), "{path} is a script, and there is no shell");
        }
    }
    assert_eq!(programs, [PROGRAM]);
}

/// Waits until the broker answers; fails if it ends.
async fn until_ready(process: &Process, port: u16) -> Result<()> {
    let http = http_client(None)?;
    let url = format!("http://127.0.0.1:{port}/readyz");
    probe::until("the broker to be ready", READY_TIMEOUT, || async {
        process.still_running()?;
        Ok(match http.get(&url).send().await {
            Ok(response) if response.status().is_success() => Probe::Ready(()),
            Ok(response) => Probe::NotYet(format!("/readyz responds with {}", response.status())),
            Err(error) => Probe::NotYet(error.to_string()),
        })
    })
    .await
}

/// Starts the broker of the image with this database and waits until it is ready.
async fn serve(container: &Container, image: &Image, database: &str) -> Result<Process> {
    container.write_setting("kubeconfig", NOWHERE)?;
    let settings = format!("{SETTINGS_FOLDER}/broker.toml");
    for _ in 0..MAX_PORT_ATTEMPTS {
        let listen = port::free()?;
        let operator = port::free()?;
        let text = format!(
            "listen = \"127.0.0.1:{listen}\"\noperator_listen = \"127.0.0.1:{operator}\"\n\
             public_url = \"http://127.0.0.1:{listen}\"\n\
             [cluster]\nkubeconfig = \"{SETTINGS_FOLDER}/kubeconfig\"\n{database}"
        );
        container.write_setting("broker.toml", &text)?;
        let process = container.start(&image.environment(), &["serve", "--config", &settings])?;
        match until_ready(&process, operator).await {
            Ok(()) => return Ok(process),
            Err(_) if process.status().is_some() && port::is_taken(&process.log_tail(20)) => {}
            Err(error) => return Err(error.context(process.log_tail(30))),
        }
    }
    bail!("every port that was free was taken before the broker could listen on it")
}

/// Checks what the process of a container may do, and that it ends when it is asked to.
async fn check_and_stop(container: &Container, process: &Process) {
    let pid = process.pid();
    assert_eq!(user_of(pid), Some(container.isolation.user()));
    let is_read_only = |path: &str| {
        let options = mount_options(pid, path).unwrap_or_default();
        options.split(',').any(|option| option == "ro")
    };
    assert!(is_read_only("/"), "{:?}", mount_options(pid, "/"));
    assert!(is_read_only(SETTINGS_FOLDER));
    assert!(!is_read_only("/var/lib/tenant-broker"));
    let status = process.stop(STOP_TIMEOUT).await.unwrap();
    assert!(status.success(), "{status}\n{}", process.log_tail(30));
}

#[tokio::test]
async fn the_broker_runs_from_the_image_on_sqlite() {
    let release = Release::shared().await;
    let image = Image::read(&release);
    let container = Container::new(&release.work_folder("container-sqlite")).await.unwrap();
    image.unpack(&container);
    let process = serve(&container, &image, "").await.unwrap();
    assert!(container.state_files().iter().any(|name| name == "broker.db"));
    check_and_stop(&container, &process).await;
}

#[tokio::test]
async fn the_broker_runs_from_the_image_on_postgres() {
    let release = Release::shared().await;
    let image = Image::read(&release);
    let postgres = Postgres::shared().await.unwrap();
    let database = postgres.database("image").await.unwrap();
    let container = Container::new(&release.work_folder("container-postgres")).await.unwrap();
    image.unpack(&container);
    // Replicas share the key, so the broker generates none.
    let key = authority::signing_key().unwrap().0;
    container.write_setting("issuer-key.pem", &key).unwrap();
    let settings = format!(
        "[database]\nurl = \"{}\"\n\
         [issuer]\nsigning_key_files = [\"{SETTINGS_FOLDER}/issuer-key.pem\"]\n",
        database.url()
    );
    let process = serve(&container, &image, &settings).await.unwrap();
    // docs/install.md promises that nothing is written there.
    assert_eq!(container.state_files(), Vec::<String>::new());
    check_and_stop(&container, &process).await;
}

#[tokio::test]
async fn the_broker_does_not_start_without_the_libraries_of_the_image() {
    let release = Release::shared().await;
    let image = Image::read(&release);
    let container = Container::new(&release.work_folder("container-bare")).await.unwrap();
    image.unpack(&container);
    let c_library = find_file(&container.root, "libc.so.6").unwrap();
    std::fs::remove_file(c_library).unwrap();
    let process = container.start(&image.environment(), &["--version"]).unwrap();
    let status = process.wait().await.unwrap();
    assert!(!status.success());
    assert!(process.log_tail(5).contains("libc.so.6"), "{}", process.log_tail(5));
}

/// Finds a file of this name below a folder.
fn find_file(folder: &Path, name: &str) -> Option<PathBuf> {
    std::fs::read_dir(folder).ok()?.flatten().find_map(|entry| {
        let path = entry.path();
        let is_found = entry.file_name() == name;
        if path.is_dir() { find_file(&path, name) } else { is_found.then_some(path) }
    })
}
