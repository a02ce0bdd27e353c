//! The program of a kubeconfig that prints the broker's credential (`users[].user.exec`, an exec
//! credential plugin of `client.authentication.k8s.io`).
//!
//! The broker runs the program itself. The Kubernetes client would run it again before the
//! credential ends, and use the new one without the check of its identity. It would also wait for
//! the program without a limit, and print its arguments and output in errors.

use std::{
    io,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use kube::config::{AuthInfo, ExecConfig, ExecInteractiveMode};
use secrecy::{ExposeSecret, SecretSlice, SecretString};
use serde::Deserialize;
use serde_json::json;
use tokio::{io::AsyncReadExt as _, process::Command, runtime::Handle};

/// How long the program may run.
const RUN_TIMEOUT: Duration = Duration::from_secs(30);
/// The bytes that are read of the program's output.
const MAX_OUTPUT_BYTES: u64 = 1024 * 1024;

/// The program gave no credential. No text has its arguments or its output, which may be secret.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// The entry of the kubeconfig names no program.
    #[error("the exec entry of the kubeconfig has no command")]
    NoCommand,
    /// The program would ask a person.
    #[error(
        "the program {command} of the kubeconfig needs a terminal (interactiveMode: Always), and \
         the broker has none"
    )]
    NeedsTerminal {
        /// The command.
        command: String,
    },
    /// The program cannot be started.
    #[error("cannot run the program {command} of the kubeconfig; is it installed and on the PATH?")]
    Start {
        /// The command.
        command: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The program runs for too long, and was killed.
    #[error(
        "the program {command} of the kubeconfig did not end within {seconds} s",
        seconds = RUN_TIMEOUT.as_secs()
    )]
    TimedOut {
        /// The command.
        command: String,
    },
    /// The program ended with an error.
    #[error(
        "the program {command} of the kubeconfig ended with {status}; its messages are not logged, \
         because they may contain a secret: run it as the broker's user to see them"
    )]
    Failed {
        /// The command.
        command: String,
        /// How it ended.
        status: ExitStatus,
    },
    /// The output is not as the protocol says.
    #[error(
        "the program {command} of the kubeconfig printed no ExecCredential with a token, or with a \
         certificate and its key"
    )]
    NoCredential {
        /// The command.
        command: String,
    },
}

/// What the program prints.
#[derive(Deserialize)]
struct ExecCredential {
    status: Option<Credential>,
}

/// The credential. The certificate and the key are PEM.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Credential {
    expiration_timestamp: Option<Timestamp>,
    token: Option<SecretString>,
    client_certificate_data: Option<String>,
    client_key_data: Option<SecretString>,
}

/// Runs the program and adds the printed credential to the identity. Returns when the credential
/// ends, if the program says so. It blocks, and runs inside the runtime.
///
/// # Errors
/// The program cannot be run, runs for too long, fails, or prints no credential.
pub(super) fn add_credential(
    identity: &mut AuthInfo,
    exec: &ExecConfig,
) -> Result<Option<Timestamp>, ExecError> {
    let command = exec.command.clone().ok_or(ExecError::NoCommand)?;
    if exec.interactive_mode == Some(ExecInteractiveMode::Always) {
        return Err(ExecError::NeedsTerminal { command });
    }
    let output = Handle::current().block_on(run(exec, &command))?;
    let credential = parse(output.expose_secret()).ok_or(ExecError::NoCredential { command })?;
    if let (Some(certificate), Some(key)) =
        (credential.client_certificate_data, credential.client_key_data)
    {
        identity.client_certificate_data = Some(STANDARD.encode(certificate));
        identity.client_key_data = Some(STANDARD.encode(key.expose_secret()).into());
    }
    identity.token = credential.token;
    Ok(credential.expiration_timestamp)
}

/// Runs the program to its end, and returns its output.
async fn run(exec: &ExecConfig, name: &str) -> Result<SecretSlice<u8>, ExecError> {
    let variables = exec.env.iter().flatten();
    let mut command = Command::new(name);
    command
        .args(exec.args.iter().flatten())
        .envs(variables.filter_map(|it| Some((it.get("name")?, it.get("value")?))))
        .env("KUBERNETES_EXEC_INFO", exec_info(exec))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let cannot_run = |source| ExecError::Start { command: name.to_owned(), source };
    let mut child = command.spawn().map_err(cannot_run)?;
    let mut output = Vec::new();
    let ended = async {
        if let Some(stdout) = child.stdout.take() {
            stdout.take(MAX_OUTPUT_BYTES).read_to_end(&mut output).await?;
        }
        child.wait().await
    };
    let status = tokio::time::timeout(RUN_TIMEOUT, ended)
        .await
        .map_err(|_| ExecError::TimedOut { command: name.to_owned() })?
        .map_err(cannot_run)?;
    if status.success() {
        Ok(output.into())
    } else {
        Err(ExecError::Failed { command: name.to_owned(), status })
    }
}

/// The request to the program, for its environment.
fn exec_info(exec: &ExecConfig) -> String {
    let mut spec = json!({"interactive": false});
    if exec.provide_cluster_info {
        spec["cluster"] = json!(exec.cluster);
    }
    json!({"apiVersion": exec.api_version, "kind": "ExecCredential", "spec": spec}).to_string()
}

/// Parses the output: JSON, or YAML as client-go accepts it.
fn parse(output: &[u8]) -> Option<Credential> {
    let printed: ExecCredential = serde_norway::from_slice(output).ok()?;
    let mut credential = printed.status?;
    credential.token = credential.token.filter(|token| !token.expose_secret().is_empty());
    let has_certificate =
        credential.client_certificate_data.is_some() && credential.client_key_data.is_some();
    (credential.token.is_some() || has_certificate).then_some(credential)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error_chain;

    /// Runs this shell script as the program, with an argument that is secret.
    async fn printed(script: &'static str) -> Result<(AuthInfo, Option<Timestamp>), ExecError> {
        let exec: ExecConfig = serde_json::from_value(json!({
            "apiVersion": "client.authentication.k8s.io/v1", "command": "sh",
            "args": ["-c", script, "--password=hunter2"],
            "env": [{"name": "ANSWER", "value": "from-the-kubeconfig"}],
        }))
        .unwrap();
        let run = move || {
            let mut identity = AuthInfo::default();
            add_credential(&mut identity, &exec).map(|ends_at| (identity, ends_at))
        };
        tokio::task::spawn_blocking(run).await.unwrap()
    }

    fn token(identity: &AuthInfo) -> Option<&str> {
        identity.token.as_ref().map(ExposeSecret::expose_secret)
    }

    #[tokio::test]
    async fn the_printed_credential_is_used() {
        let script = r#"cat <<END
            {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status":
             {"token": "$ANSWER", "expirationTimestamp": "2026-01-02T03:04:05Z"}}
END"#;
        let (identity, ends_at) = printed(script).await.unwrap();
        assert_eq!(token(&identity), Some("from-the-kubeconfig"));
        assert_eq!(ends_at, Some("2026-01-02T03:04:05Z".parse().unwrap()));

        let (identity, ends_at) = printed("printf 'status:\n  token: yaml\n'").await.unwrap();
        assert_eq!((token(&identity), ends_at), (Some("yaml"), None));

        let certificate = r#"printf '{"status": {"clientCertificateData": "C",
            "clientKeyData": "K"}}'"#;
        let (identity, _) = printed(certificate).await.unwrap();
        assert_eq!(identity.client_certificate_data, Some(STANDARD.encode("C")));
        let key = identity.client_key_data.unwrap();
        assert_eq!(key.expose_secret(), STANDARD.encode("K"));
    }

    #[tokio::test]
    async fn the_program_is_told_what_is_asked_for() {
        let script = r#"printf '{"status": {"token": "%s"}}' \
            "$(printf %s "$KUBERNETES_EXEC_INFO" | base64 | tr -d '\n')""#;
        let (identity, _) = printed(script).await.unwrap();
        let asked = STANDARD.decode(token(&identity).unwrap()).unwrap();
        let asked: serde_json::Value = serde_json::from_slice(&asked).unwrap();
        assert_eq!(
            asked,
            json!({
                "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
                "spec": {"interactive": false},
            })
        );
    }

    #[tokio::test]
    async fn no_error_has_the_arguments_or_the_output_of_the_program() {
        for (script, reason) in [
            (r#"printf '{"status": {"token": "hunter2"'"#, "printed no ExecCredential"),
            (r#"printf '{"status": {"token": ["hunter2"]}}'"#, "printed no ExecCredential"),
            (r#"printf '{"status": {"token": ""}}'"#, "printed no ExecCredential"),
            (
                r#"printf '{"status": {"token": "x", "expirationTimestamp": "hunter2"}}'"#,
                "printed no ExecCredential",
            ),
            (
                r#"printf '{"status": {"clientCertificateData": "hunter2"}}'"#,
                "printed no ExecCredential",
            ),
            ("echo hunter2; echo hunter2 >&2; exit 3", "exit status: 3"),
        ] {
            let Err(error) = printed(script).await else { panic!("{script} gives a credential") };
            let text = format!("{} {error:?}", error_chain(&error));
            assert!(text.contains(reason), "{text}");
            assert!(!text.contains("hunter2"), "{text}");
        }
    }

    #[test]
    fn a_program_that_cannot_be_run_is_refused() {
        let error = |exec: &ExecConfig| {
            add_credential(&mut AuthInfo::default(), exec).unwrap_err().to_string()
        };
        let nothing = ExecConfig { command: None, ..exec_config() };
        assert!(error(&nothing).contains("no command"));
        let mode = Some(ExecInteractiveMode::Always);
        let interactive = ExecConfig { interactive_mode: mode, ..exec_config() };
        assert!(error(&interactive).contains("needs a terminal"));
    }

    fn exec_config() -> ExecConfig {
        serde_json::from_value(json!({"command": "true"})).unwrap()
    }
}
