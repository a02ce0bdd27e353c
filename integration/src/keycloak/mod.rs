//! Keycloak, the OpenID provider that many companies use. Only the acceptance run starts it,
//! because it needs Java, 200 MB and half a minute.

mod programs;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};
use url::Url;

use crate::http_client;
use crate::port;
use crate::probe::{self, Probe};
use crate::process::{Process, Program};
use crate::scratch::Scratch;

/// Time limit until it responds; the first start compiles its configuration.
const READY_TIMEOUT: Duration = Duration::from_mins(3);
/// User name and password of the administrator of this throw-away server.
const ADMINISTRATOR: &str = "admin";
/// Name of the realm.
const REALM: &str = "company";
/// The broker's client id in the realm.
pub const CLIENT_ID: &str = "tenant-broker";
/// The broker's client secret; only this run knows the server.
pub const CLIENT_SECRET: &str = "broker-secret";

/// A running server. It ends when the value is dropped.
#[derive(Debug)]
pub struct Keycloak {
    // Dropped before its folder.
    process: Process,
    url: String,
    http: Client,
    _scratch: Scratch,
}

impl Keycloak {
    /// Starts a server that contains only its own administrator; takes about 30 s the first time.
    ///
    /// # Errors
    /// Java or Maven is missing, or it does not start.
    pub async fn start() -> Result<Self> {
        let home = programs::folder().await?;
        let scratch = Scratch::new("keycloak")?;
        let port = port::free()?;
        let management = port::free()?;
        let url = format!("http://127.0.0.1:{port}");
        let process = Program::new(home.join("bin/kc.sh"))
            .args(["start-dev", "--db=dev-mem", "--cache=local", "--http-host=127.0.0.1"])
            .arg(format!("--http-port={port}"))
            .arg(format!("--http-management-port={management}"))
            .env("KC_BOOTSTRAP_ADMIN_USERNAME", ADMINISTRATOR)
            .env("KC_BOOTSTRAP_ADMIN_PASSWORD", ADMINISTRATOR)
            .env("JAVA_OPTS_KC_HEAP", "-Xms128m -Xmx512m")
            .spawn_logged(&scratch.path().join("keycloak.log"))?;
        let http = http_client::http_client(None)?;
        let keycloak = Self { process, url, http, _scratch: scratch };
        keycloak.ready().await?;
        Ok(keycloak)
    }

    async fn ready(&self) -> Result<()> {
        let url = format!("{}/realms/master/.well-known/openid-configuration", self.url);
        let answers = || async {
            self.process.still_running()?;
            Ok(match self.http.get(&url).send().await {
                Ok(answer) if answer.status().is_success() => Probe::Ready(()),
                Ok(answer) => Probe::NotYet(answer.status().to_string()),
                Err(error) => Probe::NotYet(error.to_string()),
            })
        };
        probe::until("Keycloak", READY_TIMEOUT, answers).await
    }

    /// Returns the issuer identifier of the realm.
    pub fn issuer(&self) -> String {
        format!("{}/realms/{REALM}", self.url)
    }

    /// Creates the realm, with the broker at this address as a client and these groups.
    ///
    /// # Errors
    /// Keycloak refuses.
    pub async fn realm(&self, broker: &Url, connector: &str, groups: &[&str]) -> Result<()> {
        let redirect = broker.join(&format!("login/callback/{connector}"))?;
        let logout = broker.join(&format!("login/backchannel/{connector}"))?;
        let groups: Vec<Value> = groups.iter().map(|name| json!({ "name": name })).collect();
        let mapper = json!({
            "name": "groups",
            "protocol": "openid-connect",
            "protocolMapper": "oidc-group-membership-mapper",
            "config": {
                "claim.name": "groups",
                "full.path": "false",
                "id.token.claim": "true",
                "userinfo.token.claim": "true",
            },
        });
        let realm = json!({
            "realm": REALM,
            "enabled": true,
            "sslRequired": "none",
            "revokeRefreshToken": true,
            "refreshTokenMaxReuse": 0,
            "groups": groups,
            "clients": [{
                "clientId": CLIENT_ID,
                "secret": CLIENT_SECRET,
                "enabled": true,
                "standardFlowEnabled": true,
                "directAccessGrantsEnabled": false,
                "redirectUris": [redirect],
                "protocolMappers": [mapper],
                "attributes": {
                    "pkce.code.challenge.method": "S256",
                    "backchannel.logout.url": logout,
                    "backchannel.logout.session.required": "true",
                },
            }],
        });
        self.admin(Method::POST, "", Some(realm)).await.map(drop)
    }

    /// Creates a person whose user name is `name`. Returns their identifier, the subject.
    ///
    /// # Errors
    /// Keycloak refuses.
    pub async fn person(&self, name: &str, password: &str, groups: &[&str]) -> Result<String> {
        let person = json!({
            "username": name,
            "enabled": true,
            "email": format!("{name}@example.com"),
            "emailVerified": true,
            "firstName": name,
            "lastName": "Person",
            "groups": groups.iter().map(|name| format!("/{name}")).collect::<Vec<_>>(),
            "credentials": [{ "type": "password", "value": password, "temporary": false }],
        });
        let path = format!("/{REALM}/users");
        self.admin(Method::POST, &path, Some(person)).await?;
        let found = self.admin(Method::GET, &format!("{path}?username={name}"), None).await?;
        found[0]["id"].as_str().map(str::to_owned).context("Keycloak does not know who was made")
    }

    /// Enables or disables a person's account.
    ///
    /// # Errors
    /// Keycloak refuses.
    pub async fn enable(&self, id: &str, enabled: bool) -> Result<()> {
        let change = json!({ "enabled": enabled });
        self.admin(Method::PUT, &format!("/{REALM}/users/{id}"), Some(change)).await.map(drop)
    }

    /// Ends every session of a person; Keycloak notifies its clients (OpenID Connect Back-Channel
    /// Logout 1.0).
    ///
    /// # Errors
    /// Keycloak refuses.
    pub async fn sign_out(&self, id: &str) -> Result<()> {
        self.admin(Method::POST, &format!("/{REALM}/users/{id}/logout"), None).await.map(drop)
    }

    /// Stops the server.
    ///
    /// # Errors
    /// It had to be killed.
    pub async fn stop(&self) -> Result<()> {
        self.process.stop(Duration::from_secs(20)).await.map(drop)
    }

    async fn admin(&self, method: Method, path: &str, body: Option<Value>) -> Result<Value> {
        let form = [
            ("grant_type", "password"),
            ("client_id", "admin-cli"),
            ("username", ADMINISTRATOR),
            ("password", ADMINISTRATOR),
        ];
        let url = format!("{}/realms/master/protocol/openid-connect/token", self.url);
        let token: Value = self.http.post(url).form(&form).send().await?.json().await?;
        let token = token["access_token"].as_str().context("no token for the administrator")?;
        let url = format!("{}/admin/realms{path}", self.url);
        let mut request = self.http.request(method.clone(), &url).bearer_auth(token);
        if let Some(body) = body {
            request = request.json(&body);
        }
        let answer = request.send().await?;
        let (status, text) = (answer.status(), answer.text().await?);
        ensure!(status.is_success(), "{method} {url}: {status} {text}");
        if status == StatusCode::NO_CONTENT || text.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_str(&text).with_context(|| format!("read the answer of {method} {url}"))
    }
}
