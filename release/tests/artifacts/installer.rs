//! The installer script, with the artifacts behind a server of this machine.

use std::convert::Infallible;
use std::ffi::OsStr;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use http::header::{HeaderValue, LOCATION};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use integration::process::{Finished, Program};
use release::PLUGIN;
use release::artifacts::{CHECKSUMS, INSTALLER};
use tokio::net::TcpListener;

use crate::fixture::{Release, TOOL_TIMEOUT, tool};

/// The programs that the installer runs before a download.
const TOOLS_BEFORE_DOWNLOAD: [&str; 3] = ["mktemp", "rm", "uname"];
/// Start of the paths that are redirected to the same path without it.
const REDIRECTED: &str = "/redirected";

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
    let path = request.uri().path();
    if let Some(moved) = path.strip_prefix(REDIRECTED) {
        let mut response = Response::new(Full::default());
        *response.status_mut() = StatusCode::FOUND;
        response.headers_mut().insert(LOCATION, HeaderValue::from_str(moved).unwrap());
        return Ok(response);
    }
    let file = folder.join(path.trim_start_matches('/'));
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
    tool("curl", "curl").unwrap();
    let ours = std::env::var_os("PATH").unwrap_or_default();
    let folders = programs.map(Path::to_owned).into_iter().chain(std::env::split_paths(&ours));
    install_with_path(release, args, &std::env::join_paths(folders).unwrap()).await
}

/// Runs the installer with this `PATH`.
async fn install_with_path(release: &Release, args: &[&str], path: &OsStr) -> Finished {
    Program::new(tool("sh", "dash").unwrap())
        .arg(release.folder().join(INSTALLER))
        .args(args)
        .clear_env()
        .env("PATH", path)
        .env("HOME", release.work_folder("installer-home"))
        .run(TOOL_TIMEOUT)
        .await
        .unwrap()
}

/// Writes a program of the shell.
fn write_program(file: &Path, script: &str) {
    std::fs::write(file, script).unwrap();
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).unwrap();
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

    // Again, over the running version.
    install(&release, &args, Some(&folder)).await.success().unwrap();
    let names = std::fs::read_dir(&folder).unwrap().count();
    assert_eq!(names, 2, "temporary files are left");
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

/// The wget of `BusyBox` would accept any certificate.
#[tokio::test]
async fn the_script_downloads_with_curl_only() {
    let release = Release::shared().await;
    let programs = release.work_folder("without-curl");
    for name in TOOLS_BEFORE_DOWNLOAD {
        symlink(tool(name, "coreutils").unwrap(), programs.join(name)).unwrap();
    }
    let used = programs.join("used");
    write_program(&programs.join("wget"), &format!("#!/bin/sh\n: >'{}'\n", used.display()));
    let base = format!("http://{}", serve(release.folder()).await);
    let refused =
        install_with_path(&release, &["--base-url", base.as_str()], programs.as_os_str()).await;
    assert_eq!(refused.code(), 1, "{refused:?}");
    assert!(refused.stderr.contains("curl is needed"), "{refused:?}");
    assert!(!used.exists(), "wget was used");
}

#[tokio::test]
async fn a_redirect_to_plain_http_is_refused() {
    let release = Release::shared().await;
    let base = format!("http://{}{REDIRECTED}", serve(release.folder()).await);
    let target = release.work_folder("redirected").join("bin");
    let args = ["--base-url", base.as_str(), "--dir", target.to_str().unwrap()];
    let refused = install(&release, &args, None).await;
    assert_eq!(refused.code(), 1, "{refused:?}");
    assert!(refused.stderr.contains("cannot download"), "{refused:?}");
    assert!(!target.exists());
}

#[tokio::test]
async fn links_that_somebody_put_into_the_folder_are_not_followed() {
    let release = Release::shared().await;
    let folder = release.work_folder("prepared");
    let theirs = folder.join("theirs");
    std::fs::write(&theirs, "theirs").unwrap();
    let bin = folder.join("bin");
    std::fs::create_dir(&bin).unwrap();
    let programs = [PLUGIN, "kubectl_complete-tenant"];
    for name in programs {
        symlink(&theirs, bin.join(format!(".{name}.new"))).unwrap();
        symlink(&theirs, bin.join(name)).unwrap();
    }
    let base = format!("file://{}", release.folder().display());
    let args = ["--base-url", base.as_str(), "--dir", bin.to_str().unwrap()];
    install(&release, &args, None).await.success().unwrap();
    assert_eq!(std::fs::read_to_string(&theirs).unwrap(), "theirs");
    assert_eq!(theirs.metadata().unwrap().permissions().mode() & 0o111, 0);
    for name in programs {
        assert!(bin.join(name).symlink_metadata().unwrap().is_file(), "{name} is a link");
    }

    // A program is not put into a folder of its name.
    std::fs::remove_file(bin.join(PLUGIN)).unwrap();
    std::fs::create_dir(bin.join(PLUGIN)).unwrap();
    let refused = install(&release, &args, None).await;
    assert_eq!(refused.code(), 1, "{refused:?}");
    assert!(refused.stderr.contains("is a folder"), "{refused:?}");
    assert_eq!(std::fs::read_dir(bin.join(PLUGIN)).unwrap().count(), 0);
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
        write_program(&uname, &script);
        let refused =
            install(&release, &["--base-url", "http://127.0.0.1:1"], Some(&programs)).await;
        assert_eq!(refused.code(), 1, "{refused:?}");
        assert!(refused.stderr.contains(reason), "{refused:?}");
    }
}

#[tokio::test]
async fn plain_http_to_other_machines_and_wrong_options_are_refused() {
    let release = Release::shared().await;
    let cases: [(&[&str], &str); 6] = [
        (&["--base-url", "http://127.0.0.1.example.com"], "use https"),
        (&["--base-url", "http://127.0.0.1:80@example.com"], "plain HTTP with a user name"),
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
