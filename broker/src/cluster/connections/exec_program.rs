//! The program of a kubeconfig that prints the broker's credential (`users[].user.exec`, an exec
//! credential plugin of `client.authentication.k8s.io`).
//!
//! The broker runs the program itself. The Kubernetes client would run it again before the
//! credential ends, and use the new one without the check of its identity. It would also wait for
//! the program without a limit, and print its arguments and output in errors.
//!
//! The program has a process group of its own, because it may be a shell script whose child asks a
//! server. Killing the script alone would leave the child running.

use std::{
    io,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use kube::config::{AuthInfo, ExecConfig, ExecInteractiveMode};
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use secrecy::{ExposeSecret, SecretSlice, SecretString};
use serde::Deserialize;
use serde_json::json;
use tokio::{
    io::AsyncReadExt as _,
    process::{Child, Command},
    runtime::Handle,
};

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
    /// The program ran for too long, and was killed with its children.
    #[error(
        "the program {command} of the kubeconfig did not end within {seconds} s, and was killed; run \
         it as the broker's user to see what it waits for",
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

/// Output of the program.
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
pub(in crate::cluster) fn add_credential(
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

/// The first process of a process group. If the value is dropped before this process ended, the
/// whole group is killed. A group whose first process ended stays, because a program may leave a
/// daemon that keeps its credentials.
struct ProcessGroup(Child);

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        // There is none after the end of the process, because another one may have the identifier.
        let leader = self.0.id().and_then(|id| i32::try_from(id).ok());
        if let Some(leader) = leader {
            // An error says that all of them have ended.
            let _ = killpg(Pid::from_raw(leader), Signal::SIGKILL);
        }
    }
}

/// Runs the program to its end, and returns its output. A program that has not ended when the
/// future is dropped is killed with its process group.
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
        .process_group(0)
        .kill_on_drop(true);
    let cannot_run = |source| ExecError::Start { command: name.to_owned(), source };
    let mut group = ProcessGroup(command.spawn().map_err(cannot_run)?);
    let mut output = Vec::new();
    let ended = async {
        if let Some(stdout) = group.0.stdout.take() {
            stdout.take(MAX_OUTPUT_BYTES).read_to_end(&mut output).await?;
        }
        group.0.wait().await
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
    use std::{
        fs::File,
        io::BufRead as _,
        path::{Path, PathBuf},
    };

    use tokio::sync::oneshot;

    use super::*;
    use crate::base::error_chain;

    /// A shell script as the program. The argument is `$0` of the script.
    fn shell(script: &str, argument: &str) -> ExecConfig {
        serde_json::from_value(json!({
            "apiVersion": "client.authentication.k8s.io/v1", "command": "sh",
            "args": ["-c", script, argument],
            "env": [{"name": "ANSWER", "value": "from-the-kubeconfig"}],
        }))
        .unwrap()
    }

    /// Runs this shell script as the program, with an argument that is secret.
    async fn printed(script: &'static str) -> Result<(AuthInfo, Option<Timestamp>), ExecError> {
        let exec = shell(script, "--password=hunter2");
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

    fn named_pipe(folder: &Path) -> PathBuf {
        let pipe = folder.join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        pipe
    }

    /// Starts a thread that reads the named pipe to its end, which comes when no process has it open
    /// for writing. The first receiver gets the first line, the second one the end.
    fn read_in_thread(pipe: PathBuf) -> (oneshot::Receiver<String>, oneshot::Receiver<()>) {
        let ((started, has_started), (ended, has_ended)) = (oneshot::channel(), oneshot::channel());
        std::thread::spawn(move || {
            let mut pipe = io::BufReader::new(File::open(pipe).unwrap());
            let mut line = String::new();
            pipe.read_line(&mut line).unwrap();
            let _ = started.send(line);
            io::copy(&mut pipe, &mut io::sink()).unwrap();
            let _ = ended.send(());
        });
        (has_started, has_ended)
    }

    #[tokio::test]
    async fn the_children_of_a_program_are_killed_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = named_pipe(folder.path());
        // The script and its child have the pipe open, and both wait.
        let script = r#"exec 3>"$0"; sleep 300 & echo started >&3; wait"#;
        let exec = shell(script, pipe.to_str().unwrap());
        let (started, ended) = read_in_thread(pipe);
        tokio::select! {
            output = run(&exec, "sh") => panic!("the program ended: {:?}", output.map(drop)),
            line = started => assert_eq!(line.unwrap(), "started\n"),
        }
        // The future was dropped.
        tokio::time::timeout(Duration::from_mins(1), ended).await.expect("a child runs").unwrap();
    }

    #[tokio::test]
    async fn a_process_that_a_program_leaves_is_not_killed() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = named_pipe(folder.path());
        // The child opens the pipe, which lasts until the thread opens it, too.
        let script = r#"(echo alive >"$0") >/dev/null & printf 'status: {token: t}'"#;
        run(&shell(script, pipe.to_str().unwrap()), "sh").await.unwrap();
        let (line, _ended) = read_in_thread(pipe);
        let line = tokio::time::timeout(Duration::from_mins(1), line).await;
        assert_eq!(line.expect("it was killed").unwrap(), "alive\n");
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
