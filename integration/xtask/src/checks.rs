//! Checks of `cargo dev` before the first build.

use std::{
    env,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    process::Command,
};

use crate::{prerequisites, search_path::find_in};

/// Returns the error text of the first check that fails for a `cargo dev` with these arguments.
pub(crate) fn fault(arguments: &[OsString]) -> Option<String> {
    if arguments.iter().any(|it| it == "--help" || it == "-h") {
        return None;
    }
    let search_path = env::var_os("PATH").unwrap_or_default();
    if find_in(&search_path, "kubectl").is_none() {
        return Some(prerequisites::NO_KUBECTL.to_owned());
    }
    control_plane_fault(&search_path)
        .or_else(|| port(arguments).and_then(prerequisites::port_fault))
}

/// Checks that the programs of the control plane are there, or a Go that can build them.
fn control_plane_fault(search_path: &OsStr) -> Option<String> {
    if let Some(assets) = env::var_os("KUBEBUILDER_ASSETS").filter(|value| !value.is_empty()) {
        return prerequisites::assets_fault(Path::new(&assets));
    }
    let cache = cache_folder(|name| env::var_os(name));
    let is_missing = |name: &&str| {
        let is_cached = cache.as_ref().is_some_and(|folder| folder.join(name).is_file());
        !is_cached && find_in(search_path, name).is_none()
    };
    let missing: Vec<&str> = prerequisites::PROGRAM_NAMES.into_iter().filter(is_missing).collect();
    if missing.is_empty() {
        return None;
    }
    match find_in(search_path, "go") {
        Some(go) if cache.is_some() => go_fault(&go),
        _ => Some(prerequisites::install_hint(&missing, cache.as_deref())),
    }
}

/// Checks the version of Go as the harness does (`control_plane::Programs::find`).
fn go_fault(go: &Path) -> Option<String> {
    let answer = Command::new(go)
        .args(["env", "GOVERSION"])
        .env_remove("GOFLAGS")
        .env("GOWORK", "off")
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../controlplane"))
        .output();
    match answer {
        Ok(answer) if answer.status.success() => {
            prerequisites::go_version_fault(go, &String::from_utf8_lossy(&answer.stdout))
        }
        Ok(answer) => Some(format!(
            "{} env GOVERSION failed with {}: {}",
            go.display(),
            answer.status,
            String::from_utf8_lossy(&answer.stderr).trim()
        )),
        Err(error) => Some(format!("cannot run {}: {error}", go.display())),
    }
}

/// Returns the folder where the harness keeps the control plane (`machine::cache_folder` of the
/// harness, and the version).
fn cache_folder(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let folder = |name| variable(name).map(PathBuf::from).filter(|folder| folder.is_absolute());
    let cache = folder("TENANT_DEV_CACHE_HOME")
        .or_else(|| folder("XDG_CACHE_HOME"))
        .or_else(|| Some(folder("HOME")?.join(".cache")))?;
    Some(cache.join("kubectl-tenant/controlplane").join(prerequisites::kubernetes_version()?))
}

/// Returns the port in the arguments of `cargo dev`. One that is no number is left to the parser of
/// the program.
fn port(arguments: &[OsString]) -> Option<u16> {
    let mut arguments = arguments.iter().map(OsString::as_os_str).filter_map(OsStr::to_str);
    let rest = arguments.find_map(|argument| argument.strip_prefix("--port"))?;
    let value = if rest.is_empty() { arguments.next()? } else { rest.strip_prefix('=')? };
    value.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_found_in_both_forms() {
        let port =
            |arguments: &[&str]| port(&arguments.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(port(&["--", "--tls", "--port", "8081"]), Some(8081));
        assert_eq!(port(&["--port=8082", "--tls"]), Some(8082));
        for arguments in [&["--tls"][..], &["--port"], &["--port", "many"], &["--portal"], &[]] {
            assert_eq!(port(arguments), None, "{arguments:?}");
        }
    }

    #[test]
    fn the_cache_of_the_stack_is_preferred() {
        let cache = |set: &[(&str, &str)]| {
            let variable = |name: &str| Some(set.iter().find(|(key, _)| *key == name)?.1.into());
            cache_folder(variable)
        };
        let version = prerequisites::kubernetes_version().unwrap();
        let below = |folder: &str| {
            Some(Path::new(folder).join("kubectl-tenant/controlplane").join(version))
        };
        let home = ("HOME", "/home/a");
        let stack = ("TENANT_DEV_CACHE_HOME", "/caches");
        assert_eq!(cache(&[home]), below("/home/a/.cache"));
        assert_eq!(cache(&[home, ("XDG_CACHE_HOME", "/x")]), below("/x"));
        assert_eq!(cache(&[home, ("XDG_CACHE_HOME", "/x"), stack]), below("/caches"));
        assert_eq!(cache(&[]), None);
    }

    #[test]
    fn help_needs_no_programs() {
        assert_eq!(fault(&["--".into(), "--help".into()]), None);
    }
}
