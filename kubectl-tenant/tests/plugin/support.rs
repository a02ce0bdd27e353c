//! Home folders for tests, with forged sessions and tokens.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::{SystemTime, UNIX_EPOCH},
};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

pub(crate) const WORKSPACE: &str = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
pub(crate) const CLUSTER: &str = "internal-cluster";
/// Marker that occurs only in secrets, so that a leak is detected.
pub(crate) const CANARY: &str = "c4n4ry";
pub(crate) const EXEC_INFO: &str = "{\"kind\":\"ExecCredential\",\"apiVersion\":\
    \"client.authentication.k8s.io/v1\",\"spec\":{\"interactive\":false}}\n";

/// Current time in Unix seconds.
#[expect(clippy::disallowed_methods, reason = "the programs under test run on the real clock")]
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(since.as_secs()).unwrap()
}

/// SHA-256 in hex of a JSON array, as documented.
pub(crate) fn key(parts: &[&str]) -> String {
    let digest = Sha256::digest(serde_json::to_string(parts).unwrap());
    digest.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
}

/// Home folder of a test.
pub(crate) struct Home {
    folder: tempfile::TempDir,
    pub(crate) broker: String,
}

impl Home {
    pub(crate) fn new(broker: &str) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), broker: broker.to_owned() }
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    pub(crate) fn token_path(&self) -> PathBuf {
        self.token_path_of(WORKSPACE)
    }

    pub(crate) fn token_path_of(&self, workspace: &str) -> PathBuf {
        let key = key(&[&self.broker, CLUSTER, workspace]);
        self.path(".cache/kubectl-tenant/tokens").join(format!("{key}.json"))
    }

    pub(crate) fn token_lock(&self) -> PathBuf {
        let key = key(&[&self.broker, CLUSTER, WORKSPACE]);
        self.path(".local/state/kubectl-tenant/locks").join(format!("token-{key}.lock"))
    }

    pub(crate) fn session_path(&self) -> PathBuf {
        let key = key(&[&self.broker]);
        self.path(".local/state/kubectl-tenant/sessions").join(format!("{key}.json"))
    }

    /// Writes a cached token that was requested `age` seconds ago and expires in `left` seconds.
    pub(crate) fn forge_token(&self, token: &str, age: i64, left: i64) {
        self.forge_token_of(WORKSPACE, token, age, left);
    }

    pub(crate) fn forge_token_of(&self, workspace: &str, token: &str, age: i64, left: i64) {
        let stamp = jiff::Timestamp::from_second(now() + left - 60).unwrap();
        let document = json!({
            "version": 1, "broker": self.broker, "cluster": CLUSTER, "workspace": workspace,
            "token": token, "received_at": now() - age, "expires_at": now() + left,
            "stamp": stamp.to_string(), "credential_id": format!("jti-forged-{age}"), "clock_offset": 0,
        });
        let path = self.token_path_of(workspace);
        write(&path, &format!("{document}\n{}\n", "0".repeat(512)));
    }

    /// Writes a session whose access token expires in `left` seconds.
    pub(crate) fn forge_session(&self, number: u32, left: i64) {
        write(&self.session_path(), &self.session(number, left).to_string());
    }

    pub(crate) fn session(&self, number: u32, left: i64) -> Value {
        json!({
            "version": 1, "broker": self.broker, "subject": "s", "email": "dev@example.com",
            "token_endpoint": format!("{}/oauth2/token", self.broker),
            "revocation_endpoint": format!("{}/oauth2/revoke", self.broker),
            "refresh_token": format!("refresh-{CANARY}-{number}"),
            "access_token": format!("access-{CANARY}-{number}"),
            "access_received_at": now() - 10, "access_expires_at": now() + left,
            "signed_in_at": now() - 10,
        })
    }

    /// The program, without the environment of this process.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-tenant"));
        command.args(args).env_clear().env("HOME", self.folder.path());
        // Leaves a file if a browser is opened.
        command.env("BROWSER", format!("touch {}", self.path("browser").display()));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs the program with the kubeconfig in this folder.
    pub(crate) fn run(&self, args: &[&str]) -> CommandOutput {
        run(self.command(args).env("KUBECONFIG", self.path("config")))
    }

    /// `get-token` as a kubeconfig calls it.
    pub(crate) fn get_token(&self) -> Command {
        self.get_token_of(WORKSPACE)
    }

    pub(crate) fn get_token_of(&self, workspace: &str) -> Command {
        self.command(&[
            "get-token",
            &format!("--broker={}", self.broker),
            &format!("--cluster={CLUSTER}"),
            &format!("--workspace={workspace}"),
        ])
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert!(!self.path("browser").exists(), "a browser was opened");
        }
    }
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// Output and exit code of the program.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl CommandOutput {
    pub(crate) fn from_output(output: &Output) -> Self {
        let result = Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout.clone()).unwrap(),
            stderr: String::from_utf8(output.stderr.clone()).unwrap(),
        };
        assert!(!result.stderr.contains(CANARY), "a secret in: {}", result.stderr);
        result
    }

    /// Parses the one JSON document on stdout.
    pub(crate) fn document(&self) -> Value {
        assert_eq!(self.code, 0, "{self:?}");
        serde_json::from_str(&self.stdout).unwrap()
    }

    pub(crate) fn token(&self) -> String {
        self.document()["status"]["token"].as_str().unwrap().to_owned()
    }

    /// The expiration timestamp in Unix seconds.
    pub(crate) fn stamp(&self) -> i64 {
        let document = self.document();
        let stamp = document["status"]["expirationTimestamp"].as_str().unwrap();
        stamp.parse::<jiff::Timestamp>().unwrap().as_second()
    }

    /// Asserts that the program failed with this exit code and an empty stdout.
    pub(crate) fn failed(&self, code: i32) -> &str {
        assert_eq!(self.code, code, "{self:?}");
        assert_eq!(self.stdout, "");
        assert!(self.stderr.starts_with("error: "), "{self:?}");
        &self.stderr
    }
}

pub(crate) fn run(command: &mut Command) -> CommandOutput {
    CommandOutput::from_output(&command.output().unwrap())
}
