//! The installer script, with the artifacts behind a server of this machine.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use integration::machine;
use integration::process::{Finished, Program};
use release::PLUGIN;
use release::artifacts::{CHECKSUMS, INSTALLER};
use tokio::net::TcpListener;

use crate::fixture::{Release, TOOL_TIMEOUT};

/// Serves the files of a folder until the runtime of the test ends.
async fn serve(folder: PathBuf) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let folder = folder.clone();
            let service = service_fn(move |request| respond(folder.clone(), request));
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    address
}

async fn respond(
    folder: PathBuf,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let file = folder.join(request.uri().path().trim_start_matches('/'));
    let content = tokio::fs::read(file).await;
    let is_found = content.is_ok();
    let mut response = Response::new(Full::new(Bytes::from(content.unwrap_or_default())));
    if !is_found {
        *response.status_mut() = StatusCode::NOT_FOUND;
    }
    Ok(response)
}

/// Runs the installer with these programs in front of `PATH`.
async fn install(release: &Release, args: &[&str], programs: Option<&Path>) -> Finished {
    assert!(
        machine::find("curl").is_some(),
        "curl is not on PATH; install it: apt-get install curl"
    );
    let ours = std::env::var_os("PATH").unwrap_or_default();
    let folders = programs.map(Path::to_owned).into_iter().chain(std::env::split_paths(&ours));
    Program::new("sh")
        .arg(release.folder().join(INSTALLER))
        .args(args)
        .clear_env()
        .env("PATH", std::env::join_paths(folders).unwrap())
        .env("HOME", release.work_folder("installer-home"))
        .run(TOOL_TIMEOUT)
        .await
        .unwrap()
}

/// Copies the archive of the plugin and the list of checksums into a folder.
fn published(release: &Release, name: &str) -> (PathBuf, PathBuf) {
    let folder = release.work_folder(name);
    let archive = format!("{}.tar.gz", release.stem(PLUGIN));
    for file in [archive.as_str(), CHECKSUMS] {
        std::fs::copy(release.folder().join(file), folder.join(file)).unwrap();
    }
    let archive = folder.join(archive);
    (folder, archive)
}

#[tokio::test]
async fn the_script_installs_the_version_of_its_release() {
    let release = Release::shared().await;
    let server = serve(release.folder()).await;
    let folder = release.work_folder("installed").join("bin");
    let folder_text = folder.to_str().unwrap();
    let base = format!("http://{server}");
    let args = ["--base-url", base.as_str(), "--dir", folder_text];
    let installed = install(&release, &args, None).await.success().unwrap();
    let version = release.source.version.to_string();
    let expected = format!("kubectl-tenant {version} is in {folder_text}");
    assert!(installed.stdout.contains(&expected), "{installed:?}");
    assert!(installed.stdout.contains("to PATH"), "{installed:?}");
    assert!(std::fs::read(folder.join(PLUGIN)).unwrap() == release.plugin());
    let completion = folder.join("kubectl_complete-tenant");
    let mode = completion.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755);

    // Again, over the running version, with a link where an earlier version of the script wrote.
    let victim = release.work_folder("installed").join("victim");
    std::fs::write(&victim, "theirs").unwrap();
    std::os::unix::fs::symlink(&victim, folder.join(format!(".{PLUGIN}.new"))).unwrap();
    install(&release, &args, Some(&folder)).await.success().unwrap();
    assert_eq!(std::fs::read_to_string(victim).unwrap(), "theirs");
    let names = std::fs::read_dir(&folder).unwrap().count();
    assert_eq!(names, 3, "temporary files are left");
}

#[tokio::test]
async fn the_script_installs_from_files_into_the_home() {
    let release = Release::shared().await;
    let base = format!("file://{}", release.folder().display());
    let version = format!("v{}", release.source.version);
    let args = ["--base-url", base.as_str(), "--version", version.as_str()];
    install(&release, &args, None).await.success().unwrap();
    assert!(release.work_folder("installer-home").join(".local/bin").join(PLUGIN).is_file());
}

#[tokio::test]
async fn a_changed_archive_is_not_installed() {
    let release = Release::shared().await;
    let (folder, archive) = published(&release, "changed-archive");
    let mut bytes = std::fs::read(&archive).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&archive, bytes).unwrap();
    let base = format!("http://{}", serve(folder).await);
    let target = release.work_folder("not-installed").join("bin");
    let args = ["--base-url", base.as_str(), "--dir", target.to_str().unwrap()];
    let refused = install(&release, &args, None).await;
    assert_eq!(refused.code(), 1);
    assert!(refused.stderr.contains("nothing was installed"), "{refused:?}");
    assert!(!target.exists());
}

#[tokio::test]
async fn a_missing_file_and_an_unknown_version_are_refused() {
    let release = Release::shared().await;
    let (folder, archive) = published(&release, "missing-archive");
    let base = format!("http://{}", serve(folder).await);
    let other = ["--base-url", base.as_str(), "--version", "99.0.0"];
    let refused = install(&release, &other, None).await;
    assert!(refused.stderr.contains("version 99.0.0 has no program for"), "{refused:?}");
    std::fs::remove_file(archive).unwrap();
    let refused = install(&release, &["--base-url", base.as_str()], None).await;
    assert_eq!(refused.code(), 1);
    assert!(refused.stderr.contains("cannot download"), "{refused:?}");
}

#[tokio::test]
async fn unsupported_platforms_are_refused_before_any_download() {
    let release = Release::shared().await;
    for (name, system, machine, reason) in [
        ("windows", "MINGW64_NT-10.0-22631", "x86_64", "Windows is not supported"),
        ("freebsd", "FreeBSD", "amd64", "FreeBSD is not supported"),
        ("riscv", "Linux", "riscv64", "riscv64 is not supported"),
    ] {
        let programs = release.work_folder(&format!("uname-{name}"));
        let uname = programs.join("uname");
        let script = format!("#!/bin/sh\n[ \"$1\" = -m ] && echo {machine} || echo {system}\n");
        std::fs::write(&uname, script).unwrap();
        std::fs::set_permissions(&uname, std::fs::Permissions::from_mode(0o755)).unwrap();
        let refused =
            install(&release, &["--base-url", "http://127.0.0.1:1"], Some(&programs)).await;
        assert_eq!(refused.code(), 1, "{refused:?}");
        assert!(refused.stderr.contains(reason), "{refused:?}");
    }
}

#[tokio::test]
async fn plain_http_to_other_machines_and_wrong_options_are_refused() {
    let release = Release::shared().await;
    let cases: [(&[&str], &str); 5] = [
        (&["--base-url", "http://127.0.0.1.example.com"], "use https"),
        (&["--base-url", "ftp://example.com"], "use https"),
        (&["--version", "1/../2"], "is no version"),
        (&["--dir"], "needs a value"),
        (&["--prefix", "/usr"], "unknown option --prefix"),
    ];
    for (args, reason) in cases {
        let refused = install(&release, args, None).await;
        assert_eq!(refused.code(), 1, "{refused:?}");
        assert!(refused.stderr.contains(reason), "{refused:?}");
    }
    let help = install(&release, &["--help"], None).await.success().unwrap();
    assert!(help.stdout.contains("--base-url URL"), "{help:?}");
}

/// The wget of `BusyBox` accepts any certificate.
#[tokio::test]
async fn without_curl_nothing_is_downloaded() {
    let release = Release::shared().await;
    let programs = release.work_folder("without-curl");
    for name in ["sh", "uname", "mktemp", "rm", "sed", "cat"] {
        std::os::unix::fs::symlink(machine::find(name).unwrap(), programs.join(name)).unwrap();
    }
    let wget = programs.join("wget");
    std::fs::write(&wget, "#!/bin/sh\necho wget ran\n").unwrap();
    std::fs::set_permissions(&wget, std::fs::Permissions::from_mode(0o755)).unwrap();
    let refused = Program::new(programs.join("sh"))
        .arg(release.folder().join(INSTALLER))
        .args(["--base-url", "http://127.0.0.1:1", "--dir"])
        .arg(&programs)
        .clear_env()
        .env("PATH", &programs)
        .run(TOOL_TIMEOUT)
        .await
        .unwrap();
    assert_eq!(refused.code(), 1, "{refused:?}");
    assert!(refused.stderr.contains("curl is needed"), "{refused:?}");
    assert!(!refused.stdout.contains("wget ran"), "{refused:?}");
}
