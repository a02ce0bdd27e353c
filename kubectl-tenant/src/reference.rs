//! Environment variables, files and exit codes, for the help text and the manual pages.

use std::fmt::Write as _;

/// Column in which the explanations of the help text begin.
const EXPLANATION_COLUMN: usize = 24;

/// Environment variables that the program reads, with their meaning.
pub(crate) const ENVIRONMENT: &[(&str, &str)] = &[
    ("TENANT_BROKER_URL", "the broker, if --broker does not name it"),
    ("TENANT_PROFILE", "the account, if --profile does not name it"),
    ("TENANT_STORAGE", "keyring, file or none, if --storage does not say"),
    ("TENANT_ID_TOKEN_FILE, TENANT_ID_TOKEN", "OIDC token of a machine, which then needs no login"),
    ("TENANT_WORKSPACE", "identifier or namespace of the machine's workspace"),
    ("TENANT_BROKER_CA", "PEM file to trust besides the system's certificates"),
    ("TENANT_AUTO_LOGIN", "1: get-token may open a browser when kubectl is interactive"),
    ("BROWSER", "command line that shows a page; %s or the end gets the address"),
    ("KUBE_EDITOR, EDITOR", "command line of the editor for tenants edit; else vi"),
    ("KUBECONFIG", "kubeconfig files; the first existing one is changed"),
    ("HTTPS_PROXY, HTTP_PROXY, NO_PROXY", "proxies; never used for a broker on this machine"),
    (
        "XDG_CONFIG_HOME, XDG_STATE_HOME, XDG_CACHE_HOME",
        "where profiles, sessions and tokens are kept",
    ),
];

/// Exit codes with their meaning.
pub(crate) const EXIT_CODES: &[(&str, &str)] = &[
    ("0", "done"),
    ("1", "another failure"),
    ("2", "the command line is wrong"),
    ("3", "a person has to sign in: kubectl tenant login"),
    ("4", "the broker cannot be reached or cannot answer now"),
    ("5", "the broker refused: not allowed, suspended, not found, conflict"),
];

/// Files of the program in their default folders, with their contents.
pub(crate) const FILES: &[(&str, &str)] = &[
    ("$HOME/.config/kubectl-tenant/profiles.json", "accounts, and which one is current"),
    (
        "$HOME/.local/state/kubectl-tenant/",
        "sessions, unless they are in the keyring; locks; failures",
    ),
    ("$HOME/.cache/kubectl-tenant/", "Kubernetes tokens and completions; may be deleted"),
];

/// The end of the help text.
pub(crate) fn after_help() -> String {
    let mut text = "Environment:\n".to_owned();
    for (names, meaning) in ENVIRONMENT {
        let names = format!("  {names}");
        // Writing to a string cannot fail.
        let _ = if names.len() + 2 > EXPLANATION_COLUMN {
            writeln!(text, "{names}\n{:EXPLANATION_COLUMN$}{meaning}", "")
        } else {
            writeln!(text, "{names:EXPLANATION_COLUMN$}{meaning}")
        };
    }
    text += "\nExit codes:";
    for (code, meaning) in EXIT_CODES {
        let _ = write!(text, "\n  {code}  {meaning}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    #[test]
    fn every_kind_of_error_has_its_exit_code_here() {
        let kinds = [Kind::Other, Kind::Usage, Kind::SignIn, Kind::Unreachable, Kind::Refused];
        for kind in kinds {
            let code = kind.exit_code().to_string();
            assert!(EXIT_CODES.iter().any(|(known, _)| *known == code), "{code}");
        }
        assert_eq!(EXIT_CODES.len(), kinds.len() + 1);
    }
}
