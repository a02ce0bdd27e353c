//! A company's OpenID provider: the certified library `oidc-provider` on Node.js, whose people,
//! keys and faults a test controls (`integration/oidc-provider/main.mjs`).

mod client;
mod install;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use reqwest::Client;
use serde_json::{Value, json};
use url::Url;

use crate::browser::{Browser, Page};
use crate::http_client;
use crate::probe::{self, Probe};
use crate::process::{Process, Program};
use crate::progress::print_message;
use crate::scratch::Scratch;

pub use client::certified_client;

/// Time limit until the provider responds, on a busy machine.
const READY_TIMEOUT: Duration = Duration::from_mins(1);
/// Maximum number of forms between the sign-in page and the redirect back: sign-in, consent.
const FORMS: u32 = 3;

/// A running provider. It ends when the value is dropped.
#[derive(Debug)]
pub struct OidcProvider {
    // Dropped before its folder.
    process: Process,
    url: String,
    http: Client,
    _scratch: Scratch,
}

impl OidcProvider {
    /// Starts a provider without people and clients; takes less than 2 s once its library is
    /// installed.
    ///
    /// # Errors
    /// Node.js or npm is missing, or the provider does not start.
    pub async fn start() -> Result<Self> {
        let node = install::node()?;
        let scratch = Scratch::new("oidc-provider")?;
        install::into(scratch.path()).await?;
        let script = scratch.path().join("main.mjs");
        let log = scratch.path().join("oidc-provider.log");
        let http = http_client::http_client(None)?;
        let start = async || {
            let process = Program::new(&node).arg(&script).spawn_logged(&log)?;
            let url = ready(&process, &log).await?;
            anyhow::Ok((process, url))
        };
        // On a machine under full load, one of hundreds was seen to be silent for a minute.
        let (process, url) = match start().await {
            Ok(started) => started,
            Err(error) => {
                print_message(&format!("the OpenID provider is started again: {error:#}"));
                start().await?
            }
        };
        Ok(Self { process, url, http, _scratch: scratch })
    }

    /// The issuer identifier.
    pub fn issuer(&self) -> &str {
        &self.url
    }

    /// Path of the log file.
    pub fn log(&self) -> Option<&Path> {
        self.process.log()
    }

    /// Creates or changes a person with these claims. The name is the subject, and the user name of
    /// the sign-in.
    ///
    /// # Errors
    /// The provider does not answer.
    pub async fn person(&self, name: &str, claims: Value) -> Result<()> {
        self.command("users", &json!({ name: claims })).await.map(drop)
    }

    /// Removes a person.
    ///
    /// # Errors
    /// The provider does not answer.
    pub async fn remove(&self, name: &str) -> Result<()> {
        self.person(name, Value::Null).await
    }

    /// Sets the known clients (OpenID Connect Dynamic Client Registration 1.0 section 2).
    ///
    /// # Errors
    /// The provider does not respond or refuses the clients.
    pub async fn clients(&self, clients: Value) -> Result<()> {
        self.command("clients", &clients).await.map(drop)
    }

    /// Rotates the signing key; with `keep` the old keys stay published. `kty` is RSA or EC.
    ///
    /// # Errors
    /// The provider does not answer.
    pub async fn rotate(&self, kty: &str, keep: bool) -> Result<()> {
        self.command("rotate", &json!({ "kty": kty, "keep": keep })).await.map(drop)
    }

    /// Responds to every request with this status from now on; `None` ends the outage.
    ///
    /// # Errors
    /// The provider does not answer.
    pub async fn outage(&self, status: Option<u16>) -> Result<()> {
        self.command("set", &json!({ "outage": status })).await.map(drop)
    }

    /// Sets whether the ID token has all claims from now on, as with most providers, and not only
    /// the response of userinfo.
    ///
    /// # Errors
    /// The provider does not answer.
    pub async fn claims_in_id_token(&self, included: bool) -> Result<()> {
        self.command("set", &json!({ "claimsInIdToken": included })).await.map(drop)
    }

    /// Sets whether the provider issues refresh tokens from now on.
    ///
    /// # Errors
    /// The provider does not answer.
    pub async fn refresh_tokens(&self, given: bool) -> Result<()> {
        self.command("set", &json!({ "refreshTokens": given })).await.map(drop)
    }

    /// Corrupts the next ID token: `{"header": {…}, "claims": {…}, "foreign": true}`.
    ///
    /// # Errors
    /// The provider does not answer.
    pub async fn spoil(&self, how: Value) -> Result<()> {
        self.command("spoil", &how).await.map(drop)
    }

    /// Signs any token with the provider's key: `{"header": {…}, "claims": {…}, "foreign": true}`.
    ///
    /// # Errors
    /// The provider does not answer.
    pub async fn sign(&self, what: Value) -> Result<String> {
        let answer = self.command("sign", &what).await?;
        answer["token"].as_str().map(str::to_owned).context("no token in the provider's answer")
    }

    /// Returns the number of requests for each path.
    ///
    /// # Errors
    /// The provider does not answer.
    pub async fn counts(&self) -> Result<BTreeMap<String, u64>> {
        let counts = self.command("counts", &json!({})).await?;
        serde_json::from_value(counts).context("read the provider's counts")
    }

    /// Notifies a client that a person signed out (OpenID Connect Back-Channel Logout 1.0).
    ///
    /// # Errors
    /// The client refuses.
    pub async fn logout(&self, client: &str, subject: &str, sid: Option<&str>) -> Result<()> {
        let command = json!({ "client": client, "subject": subject, "sid": sid });
        self.command("logout", &command).await.map(drop)
    }

    /// Signs a person in: opens an address that leads to the provider's form, fills in the forms
    /// there, and returns the first page outside of the provider, or the page where the browser
    /// stops.
    ///
    /// # Errors
    /// A page that should have a form has none.
    pub async fn sign_in(&self, browser: &Browser, url: Url, name: &str) -> Result<Page> {
        let mut page = browser.open(url).await?;
        for _ in 0..FORMS {
            if !page.url.as_str().starts_with(&self.url) || page.status.is_redirection() {
                return Ok(page);
            }
            let fields: &[(&str, &str)] = if page.body.contains("name=\"login\"") {
                &[("login", name), ("password", "any")]
            } else {
                &[]
            };
            page = browser.submit(&page, fields).await?;
        }
        Ok(page)
    }

    async fn command(&self, name: &str, body: &Value) -> Result<Value> {
        let answer = self
            .http
            .post(format!("{}/control/{name}", self.url))
            .json(body)
            .send()
            .await
            .context("reach the provider")?;
        let (status, text) = (answer.status(), answer.text().await.context("read its answer")?);
        if !status.is_success() {
            bail!("the provider answers {status} to {name}: {text}");
        }
        serde_json::from_str(&text).context("read the provider's answer")
    }
}

/// Waits for the address that the provider prints once it listens; the system chose its port.
async fn ready(process: &Process, log: &Path) -> Result<String> {
    probe::until("the OpenID provider to listen", READY_TIMEOUT, || async {
        process.still_running()?;
        let written = std::fs::read_to_string(log).context("read the provider's log")?;
        let address = written.lines().find_map(|line| line.strip_prefix("ready: "));
        Ok(match address {
            Some(address) => Probe::Ready(address.to_owned()),
            None => Probe::NotYet("it does not say that it is ready".to_owned()),
        })
    })
    .await
    .with_context(|| process.log_tail(20))
}
