//! A real browser, controlled over the Chrome `DevTools` protocol.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpListener,
    process::{Child, ChildStdin, ChildStdout, Command},
    sync::Mutex,
};

use crate::{
    machine,
    probe::{self, Probe},
};

/// A page with one paragraph.
const BLANK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\
    Connection: close\r\n\r\n<p>hi!";
/// Time limit for a page.
const PAGE_TIMEOUT: Duration = Duration::from_mins(1);

/// Serves a blank page from another origin on loopback, to call the broker from. Returns its
/// origin; the page exists until the test's runtime ends.
///
/// # Errors
/// There is no free port.
pub async fn foreign_page() -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let origin = format!("http://{}", listener.local_addr()?);
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            // Browsers open connections ahead, so one without a request delays no other.
            tokio::spawn(async move {
                // Every request gets the same page; a client that disconnects is ignored.
                let _ = connection.read(&mut vec![0; 4096]).await;
                let _ = connection.write_all(BLANK).await;
            });
        }
    });
    Ok(origin)
}

/// Chromium without a window, with one tab.
#[derive(Debug)]
pub struct Chromium {
    pipe: Mutex<Pipe>,
    tab: String,
    _process: Child,
    _profile: TempDir,
}

#[derive(Debug)]
struct Pipe {
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    calls: u64,
}

impl Pipe {
    /// Sends one command and returns its result; messages end with a zero byte.
    async fn call(&mut self, tab: Option<&str>, method: &str, parameters: Value) -> Result<Value> {
        self.calls += 1;
        let mut message = json!({ "id": self.calls, "method": method, "params": parameters });
        if let Some(tab) = tab {
            message["sessionId"] = tab.into();
        }
        self.to.write_all(message.to_string().as_bytes()).await?;
        self.to.write_all(&[0]).await?;
        loop {
            let mut bytes = Vec::new();
            self.from.read_until(0, &mut bytes).await?;
            ensure!(bytes.pop() == Some(0), "chromium ended at {method}");
            let answer: Value = serde_json::from_slice(&bytes)?;
            // All other messages are events, which are ignored.
            if answer["id"] == self.calls {
                ensure!(answer.get("error").is_none(), "{method}: {answer}");
                return Ok(answer["result"].clone());
            }
        }
    }
}

impl Chromium {
    /// Starts the browser; it ends when the value is dropped.
    ///
    /// # Errors
    /// Chromium is not installed (the text says how to install it), or does not start.
    pub async fn start() -> Result<Self> {
        let program = ["chromium", "chromium-browser", "google-chrome"]
            .iter()
            .find_map(|name| machine::find(name))
            .context("a browser is needed for this: sudo apt-get install chromium")?;
        let profile = tempfile::tempdir()?;
        // Commands come in on descriptor 3, responses go out on 4.
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
            // Chromium's sandbox refuses root. The pages are our own.
            .arg("--no-sandbox")
            .arg(format!("--user-data-dir={}", profile.path().display()));
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("start chromium")?;
        let mut pipe = Pipe {
            to: process.stdin.take().context("chromium's input")?,
            from: BufReader::new(process.stdout.take().context("chromium's output")?),
            calls: 0,
        };
        let target =
            pipe.call(None, "Target.createTarget", json!({ "url": "about:blank" })).await?;
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = pipe.call(None, "Target.attachToTarget", attach).await?;
        let tab = session["sessionId"].as_str().context("chromium opened no tab")?.to_owned();
        Ok(Self { pipe: Mutex::new(pipe), tab, _process: process, _profile: profile })
    }

    /// Sends one command of the protocol to the tab.
    ///
    /// # Errors
    /// The browser refuses it or has ended.
    pub async fn call(&self, method: &str, parameters: Value) -> Result<Value> {
        self.pipe.lock().await.call(Some(&self.tab), method, parameters).await
    }

    /// Navigates to a page.
    ///
    /// # Errors
    /// As [`Chromium::call`].
    pub async fn open(&self, url: &str) -> Result<()> {
        self.call("Page.navigate", json!({ "url": url })).await.map(drop)
    }

    /// Evaluates an expression on the page; null if it throws. A promise is awaited.
    ///
    /// # Errors
    /// As [`Chromium::call`].
    pub async fn value(&self, expression: &str) -> Result<Value> {
        let asked =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        Ok(self.call("Runtime.evaluate", asked).await?["result"]["value"].clone())
    }

    /// Waits until an expression on the page is true.
    ///
    /// # Errors
    /// It is not true within a minute.
    pub async fn until(&self, expression: &str) -> Result<()> {
        let holds = || async {
            // During a navigation there is no page to evaluate it on.
            Ok(match self.value(expression).await {
                Ok(Value::Bool(true)) => Probe::Ready(()),
                Ok(other) => Probe::NotYet(format!("it is {other}")),
                Err(error) => Probe::NotYet(error.to_string()),
            })
        };
        probe::until(expression, PAGE_TIMEOUT, holds).await
    }

    /// Fills in a field and leaves the events to the page.
    ///
    /// # Errors
    /// The field does not appear.
    pub async fn fill(&self, selector: &str, text: &str) -> Result<()> {
        let (selector, text) = (json!(selector), json!(text));
        self.until(&format!("document.querySelector({selector}) !== null")).await?;
        self.value(&format!("document.querySelector({selector}).value = {text}")).await.map(drop)
    }

    /// Clicks on an element.
    ///
    /// # Errors
    /// The element does not appear.
    pub async fn click(&self, selector: &str) -> Result<()> {
        let selector = json!(selector);
        self.until(&format!("document.querySelector({selector}) !== null")).await?;
        self.value(&format!("document.querySelector({selector}).click()")).await.map(drop)
    }

    /// Saves a screenshot of the page as `<target folder>/screenshots/<name>.png`, for people to
    /// look at, and returns its path.
    ///
    /// # Errors
    /// It cannot be made within a minute, or written.
    pub async fn screenshot(&self, name: &str) -> Result<PathBuf> {
        let capture = || async {
            let whole = json!({ "format": "png", "captureBeyondViewport": true });
            // Until its first layout a page has no size, and the browser refuses to capture it.
            Ok(match self.call("Page.captureScreenshot", whole).await {
                Ok(picture) => Probe::Ready(picture),
                Err(error) => Probe::NotYet(error.to_string()),
            })
        };
        let picture = probe::until("a screenshot", PAGE_TIMEOUT, capture).await?;
        let picture = STANDARD.decode(picture["data"].as_str().context("no picture")?)?;
        let program = std::env::current_exe()?;
        // cargo keeps its fingerprints in the profile's folder, for example `target/debug`.
        let profile = program.ancestors().find(|folder| folder.join(".fingerprint").is_dir());
        let target = profile.and_then(Path::parent).context("the folder of build results")?;
        let folder = target.join("screenshots");
        std::fs::create_dir_all(&folder)?;
        let file = folder.join(format!("{name}.png"));
        std::fs::write(&file, picture)?;
        Ok(file)
    }
}
