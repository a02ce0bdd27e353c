//! The certified OpenID libraries of the tests, installed with npm once for this user.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest, Sha256};

use crate::machine;
use crate::process::Program;
use crate::progress::print_message;

const PACKAGE: &str = include_str!("../../oidc-provider/package.json");
const LOCK: &str = include_str!("../../oidc-provider/package-lock.json");
const SCRIPTS: [(&str, &str); 3] = [
    ("client.mjs", include_str!("../../oidc-provider/client.mjs")),
    ("main.mjs", include_str!("../../oidc-provider/main.mjs")),
    ("memory.mjs", include_str!("../../oidc-provider/memory.mjs")),
];

/// Time limit of an installation, including a slow download.
const INSTALL_TIMEOUT: Duration = Duration::from_mins(10);
const INSTALL_HINT: &str = "on Debian: sudo apt-get install nodejs npm (20 or later); on macOS: brew \
                       install node";

/// Returns the path of Node.js.
pub(super) fn node() -> Result<PathBuf> {
    machine::find("node")
        .with_context(|| format!("the OpenID provider of the tests needs node; {INSTALL_HINT}"))
}

/// Writes the scripts into this folder, next to a link to the libraries that they need.
pub(super) async fn into(folder: &Path) -> Result<()> {
    for (name, text) in SCRIPTS {
        fs::write(folder.join(name), text).with_context(|| format!("write {name}"))?;
    }
    std::os::unix::fs::symlink(libraries().await?, folder.join("node_modules"))
        .context("link the libraries of the tests' OpenID programs")
}

/// Returns the libraries that the lock file names, from our cache or from the package registry. A
/// folder appears in the cache only when it is complete.
async fn libraries() -> Result<PathBuf> {
    let Some(cache) = machine::cache_folder() else {
        bail!("there is no place to keep the provider's libraries: set HOME or XDG_CACHE_HOME");
    };
    let cache = cache.join("oidc-provider");
    let hash = Sha256::new().chain_update(PACKAGE).chain_update(LOCK).finalize();
    let name = URL_SAFE_NO_PAD.encode(&hash[..9]);
    let installed = cache.join(name);
    let libraries = installed.join("node_modules");
    if libraries.is_dir() {
        return Ok(libraries);
    }
    fs::create_dir_all(&cache).with_context(|| format!("make the folder {}", cache.display()))?;
    let _lock =
        machine::lock(&cache, "installs the OpenID provider of the tests", INSTALL_TIMEOUT).await?;
    if libraries.is_dir() {
        return Ok(libraries);
    }
    let npm = machine::find("npm")
        .with_context(|| format!("the OpenID provider of the tests needs npm; {INSTALL_HINT}"))?;
    print_message(&format!(
        "installing the OpenID provider of the tests into {}",
        installed.display()
    ));
    let work = tempfile::Builder::new()
        .prefix(".installing-")
        .tempdir_in(&cache)
        .context("make a folder to install in")?;
    fs::write(work.path().join("package.json"), PACKAGE).context("write package.json")?;
    fs::write(work.path().join("package-lock.json"), LOCK).context("write package-lock.json")?;
    Program::new(npm)
        .args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"])
        .in_folder(work.path())
        .run(INSTALL_TIMEOUT)
        .await?
        .success()
        .context("install the OpenID provider of the tests (can npm reach its registry?)")?;
    fs::rename(work.path(), &installed)
        .with_context(|| format!("move the libraries to {}", installed.display()))?;
    Ok(libraries)
}
