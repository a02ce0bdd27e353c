//! The environment variables that describe the stack to a command or to a person's terminal.

use std::ffi::OsString;
use std::fmt::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use integration::machine::{self, CACHE_HOME_ENV};
use integration::scratch::{private_folder, write_private};
use integration::world::World;

use crate::people::People;

/// A variable to set, or to unset.
pub(crate) struct Variable {
    pub(crate) name: &'static str,
    pub(crate) value: Option<OsString>,
}

/// Returns the variables of `--exec`: a fresh home of a person, the broker, the accounts, the log
/// files.
pub(crate) fn variables(world: &World, people: &People) -> Result<Vec<Variable>> {
    let home = home(world)?;
    let urls: Vec<String> =
        world.brokers().iter().map(|broker| Ok(written(&broker.url()?))).collect::<Result<_>>()?;
    let ours = std::env::var_os("PATH").unwrap_or_default();
    let path = std::iter::once(world.binaries().folder().to_owned())
        .chain(std::env::split_paths(&ours))
        .collect::<Vec<_>>();
    let mut all = Vec::new();
    let mut set = |name, value: OsString| all.push(Variable { name, value: Some(value) });
    set("PATH", std::env::join_paths(path).context("put the programs on PATH")?);
    set("HOME", home.clone().into());
    set("KUBECONFIG", home.join(".kube/config").into());
    set("TENANT_BROKER_URL", written(&world.broker().public_url()?).into());
    set("TENANT_BROKER_URLS", urls.join(" ").into());
    set("TENANT_ADMIN_KUBECONFIG", world.cluster().admin_kubeconfig().into());
    set("TENANT_BROKER_KUBECONFIG", world.cluster().broker_kubeconfig().into());
    for (email, password, account) in [
        ("TENANT_USER_EMAIL", "TENANT_USER_PASSWORD", &people.first),
        ("TENANT_USER2_EMAIL", "TENANT_USER2_PASSWORD", &people.second),
        ("TENANT_OPERATOR_EMAIL", "TENANT_OPERATOR_PASSWORD", &people.operator),
    ] {
        set(email, account.email.clone().into());
        set(password, account.password.clone().into());
    }
    set("TENANT_STATE_DIR", world.broker().state_dir().into());
    set("TENANT_BROKER_LOG", world.broker().log_file().into());
    set("TENANT_API_AUDIT_LOG", world.cluster().audit_log().into());
    if let Some(file) = world.broker_ca_file() {
        set("TENANT_BROKER_CA", file.into());
    }
    // `cargo dev` and `cargo test` there find what is built already.
    if let Some(cache) = machine::cache_home() {
        set(CACHE_HOME_ENV, cache.into());
    }
    // The caller's environment may have set these, and they would lead out of the fresh home.
    let astray = ["XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"];
    let astray = astray.into_iter().chain(["KUBECACHEDIR", "KUBERC", "TENANT_BROKER_CONFIG"]);
    // cargo sets this one for us; with it each program would search a dozen folders for its
    // libraries.
    let astray = astray.chain(["LD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH"]);
    all.extend(astray.map(|name| Variable { name, value: None }));
    Ok(all)
}

/// Writes the same variables as a script to source. `HOME` stays the person's own, so that the
/// shell's history, their editor and their keys keep working. `KUBECONFIG`, `KUBECACHEDIR` and the
/// XDG variables direct the files of kubectl and the plugin into the stack's folder instead.
pub(crate) fn write_script(world: &World, variables: &[Variable]) -> Result<PathBuf> {
    let home = home(world)?;
    let mut script =
        "# Sourced by a shell: leads kubectl in this terminal to cargo dev's stack.\n".to_owned();
    let set = variables.iter().filter_map(|one| Some((one.name, one.value.clone()?)));
    let instead_of_home = [
        ("XDG_CONFIG_HOME", home.join(".config")),
        ("XDG_CACHE_HOME", home.join(".cache")),
        ("XDG_STATE_HOME", home.join(".local/state")),
        ("XDG_DATA_HOME", home.join(".local/share")),
        ("KUBECACHEDIR", home.join(".kube/cache")),
    ];
    let set = set
        .filter(|(name, _)| *name != "HOME" && *name != "PATH")
        .chain(instead_of_home.map(|(name, path)| (name, path.into())));
    for (name, value) in set {
        writeln!(script, "export {name}={}", quoted(&value.to_string_lossy()))?;
    }
    let programs = quoted(&world.binaries().folder().to_string_lossy());
    writeln!(script, "export PATH={programs}:\"$PATH\"")?;
    let file = world.folder().join("env.sh");
    write_private(&file, script)?;
    Ok(file)
}

fn home(world: &World) -> Result<PathBuf> {
    let home = world.folder().join("home");
    private_folder(&home)?;
    Ok(home)
}

/// Formats a URL as people write it: without the slash that [`url::Url`] appends.
pub(crate) fn written(url: &url::Url) -> String {
    url.as_str().trim_end_matches('/').to_owned()
}

/// Quotes a text as one word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_text_is_itself_to_a_shell() {
        let text = "it's $HOME and \"more\"";
        let command = format!("printf %s {}", quoted(text));
        let output = std::process::Command::new("/bin/sh").args(["-c", &command]).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), text);
    }
}
