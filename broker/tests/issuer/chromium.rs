//! A real browser, told what to do over the Chrome `DevTools` protocol.

use std::{process::Stdio, time::Duration};

use integration::{
    machine,
    probe::{self, Probe},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child, ChildStdin, ChildStdout, Command},
    sync::Mutex,
};

/// How long a page may take.
const PATIENCE: Duration = Duration::from_mins(1);

/// Chromium without a window, with one tab.
pub(crate) struct Chromium {
    pipe: Mutex<Pipe>,
    tab: String,
    _process: Child,
    _profile: tempfile::TempDir,
}

struct Pipe {
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    calls: u64,
}

impl Pipe {
    /// One command and its result; messages end with a zero byte.
    async fn call(&mut self, tab: Option<&str>, method: &str, parameters: Value) -> Value {
        self.calls += 1;
        let mut message = json!({ "id": self.calls, "method": method, "params": parameters });
        if let Some(tab) = tab {
            message["sessionId"] = tab.into();
        }
        self.to.write_all(message.to_string().as_bytes()).await.unwrap();
        self.to.write_all(&[0]).await.unwrap();
        loop {
            let mut bytes = Vec::new();
            self.from.read_until(0, &mut bytes).await.unwrap();
            assert_eq!(bytes.pop(), Some(0), "chromium ended at {method}");
            let answer: Value = serde_json::from_slice(&bytes).unwrap();
            // Others are events, which are not listened to.
            if answer["id"] == self.calls {
                assert!(answer.get("error").is_none(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }
}

impl Chromium {
    pub(crate) async fn start() -> Self {
        let program = ["chromium", "chromium-browser", "google-chrome"]
            .iter()
            .find_map(|name| machine::find(name))
            .expect("a browser is needed: apt-get install chromium");
        let profile = tempfile::tempdir().unwrap();
        // Commands come in on descriptor 3, answers go out on 4.
        let mut command = Command::new("sh");
        command
            .args(["-c", "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null", "sh"])
            .arg(program)
            .args(["--headless", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu"])
            .args([
                "--disable-dev-shm-usage",
                "--no-proxy-server",
                "--disable-background-networking",
            ])
            // Its sandbox refuses root. The pages are our own.
            .arg("--no-sandbox")
            .arg(format!("--user-data-dir={}", profile.path().display()));
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut pipe = Pipe {
            to: process.stdin.take().unwrap(),
            from: BufReader::new(process.stdout.take().unwrap()),
            calls: 0,
        };
        let target = pipe.call(None, "Target.createTarget", json!({ "url": "about:blank" })).await;
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = pipe.call(None, "Target.attachToTarget", attach).await;
        let tab = session["sessionId"].as_str().unwrap().to_owned();
        Self { pipe: Mutex::new(pipe), tab, _process: process, _profile: profile }
    }

    pub(crate) async fn call(&self, method: &str, parameters: Value) -> Value {
        self.pipe.lock().await.call(Some(&self.tab), method, parameters).await
    }

    pub(crate) async fn open(&self, url: &str) {
        self.call("Page.navigate", json!({ "url": url })).await;
    }

    /// The value of an expression on the page; null where it throws.
    pub(crate) async fn value(&self, expression: &str) -> Value {
        let asked = json!({ "expression": expression, "returnByValue": true });
        self.call("Runtime.evaluate", asked).await["result"]["value"].clone()
    }

    /// Waits until an expression on the page is true.
    pub(crate) async fn until(&self, expression: &str) {
        let holds = || async {
            Ok(match self.value(expression).await {
                Value::Bool(true) => Probe::Ready(()),
                other => Probe::NotYet(format!("it is {other}")),
            })
        };
        probe::until(expression, PATIENCE, holds).await.unwrap();
    }
}
