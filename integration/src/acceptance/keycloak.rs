//! Acceptance of the sign-in with Keycloak and a real browser: people, roles, removal, outage,
//! sign-out.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::Method;
use secrecy::SecretString;
use serde_json::json;
use tenant_shared::{SessionList, UserInfo, UserList};
use uuid::Uuid;

use super::step;
use crate::api::Api;
use crate::chromium::Chromium;
use crate::keycloak::{CLIENT_ID, CLIENT_SECRET, Keycloak};
use crate::person::Person;
use crate::probe::{self, Probe};
use crate::process::Finished;
use crate::progress::print_message;
use crate::world::World;

/// Name of the connector in the broker's configuration.
const CONNECTOR: &str = "keycloak";
/// Password of every person in the realm.
const PASSWORD: &str = "correct horse battery";
/// Time limit of every step that a person waits for.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);
/// Lifetime of the broker's access tokens here: short, so that refreshes come soon.
const ACCESS_TOKEN_TTL: Duration = Duration::from_mins(1);
/// How long the broker bridges an outage of Keycloak here.
const OUTAGE_GRACE: Duration = Duration::from_mins(2);

/// Runs the whole part.
///
/// # Errors
/// A check fails; the error names the step.
pub async fn run() -> Result<()> {
    print_message("keycloak");
    let keycloak = step("start Keycloak", Keycloak::start()).await?;
    let key = |name: &str| format!("connectors.{CONNECTOR}.{name}");
    let start = World::builder()
        .own_control_plane()
        .setting(&key("issuer"), keycloak.issuer())
        .setting(&key("client_id"), CLIENT_ID)
        .setting(&key("client_secret"), CLIENT_SECRET)
        .setting(&key("display_name"), "the company")
        // With offline_access Keycloak's own session ends with the sign-in, and a sign-out at
        // Keycloak notifies nobody; docs/sign-in.md explains what that means.
        .setting(&key("scopes"), "openid email profile")
        .setting(&key("allowed_groups"), vec!["staff".to_owned()])
        .setting(&key("admin_groups"), vec!["operators".to_owned()])
        .setting(&key("outage_seconds"), i64::try_from(OUTAGE_GRACE.as_secs())?)
        .setting("issuer.access_token_seconds", i64::try_from(ACCESS_TOKEN_TTL.as_secs())?)
        .setting("log.level", "info")
        .start();
    let world = step("start the control plane and the broker", Box::pin(start)).await?;
    let broker = world.broker().public_url()?;
    let operator = world.administrator("operator").await?.api().await?;
    let realm = keycloak.realm(&broker, CONNECTOR, &["staff", "operators"]);
    step("make a realm with the broker as its client", realm).await?;
    let alice = keycloak.person("alice", PASSWORD, &["staff"]).await?;
    let olivia = keycloak.person("olivia", PASSWORD, &["staff", "operators"]).await?;
    keycloak.person("eve", PASSWORD, &[]).await?;

    step("alice signs in and makes a workspace on the account page", in_browser(&world)).await?;
    let at_terminal = person(&world, "alice")?;
    step(
        "alice signs in at a terminal by device code, kubectl works",
        by_device(&world, &at_terminal),
    )
    .await?;
    let workspace = workspace(&at_terminal).await?;
    step("olivia is an administrator by her group", is_admin(&world)).await?;
    step("eve, of no group, is refused", is_refused(&world, &operator)).await?;

    step("a sign-out at Keycloak ends the sessions here", async {
        let before = sessions(&operator, "olivia@example.com").await?;
        ensure!(before > 0, "there is no session to end");
        keycloak.sign_out(&olivia).await?;
        let over = || async {
            Ok(match sessions(&operator, "olivia@example.com").await? {
                0 => Probe::Ready(()),
                some => {
                    let log = world.broker().log()?;
                    let heard: Vec<_> =
                        log.lines().filter(|line| line.contains("/login/backchannel")).collect();
                    Probe::NotYet(format!("{some} sessions; the broker heard {heard:?}"))
                }
            })
        };
        probe::until("the end of the sessions", STEP_TIMEOUT, over).await
    })
    .await?;

    keycloak.enable(&alice, false).await?;
    step("alice is disabled at Keycloak: her next refresh ends the session", async {
        let text = refusal(&at_terminal, &workspace, ACCESS_TOKEN_TTL + STEP_TIMEOUT).await?;
        ensure!(text.contains("kubectl tenant login"), "it does not say what to do: {text}");
        Ok(())
    })
    .await?;

    keycloak.enable(&alice, true).await?;
    step("alice may sign in again", by_device(&world, &at_terminal)).await?;
    step("stop Keycloak", keycloak.stop()).await?;
    step("the outage is bridged: alice's session goes on over a refresh", async {
        tokio::time::sleep(ACCESS_TOKEN_TTL).await;
        token(&at_terminal, &workspace).await?.success().map(drop)
    })
    .await?;
    step("the bridge ends: nothing is issued any more", async {
        refusal(&at_terminal, &workspace, OUTAGE_GRACE + ACCESS_TOKEN_TTL + STEP_TIMEOUT)
            .await
            .map(drop)
    })
    .await?;
    print_message("keycloak: passed; the screenshots are in target/screenshots");
    Ok(())
}

/// Requests a fresh token and bypasses the plugin's cache.
async fn token(person: &Person, workspace: &str) -> Result<Finished> {
    let args = ["tenant", "get-token", "--force", "--workspace", workspace];
    person.kubectl().run(args).await
}

/// Returns the id of the person's workspace.
async fn workspace(person: &Person) -> Result<String> {
    let workspaces = person.kubectl().json(["tenant", "workspaces"]).await?;
    let id = workspaces["items"][0]["id"].as_str().context("there is no workspace")?;
    Ok(id.to_owned())
}

/// Waits until the broker issues no more tokens, and returns the message that the person then sees.
async fn refusal(person: &Person, workspace: &str, limit: Duration) -> Result<String> {
    let refused = || async {
        let finished = token(person, workspace).await?;
        Ok(if finished.status.success() {
            Probe::NotYet("get-token still succeeds".to_owned())
        } else {
            Probe::Ready(finished.stderr)
        })
    };
    probe::until("the refusal", limit, refused).await
}

/// Creates a person at a terminal without a browser.
fn person(world: &World, name: &str) -> Result<Person> {
    let email = format!("{name}@example.com");
    world.known_person(&email, SecretString::from(PASSWORD), Uuid::nil())
}

/// Signs in at Keycloak from the broker's sign-in page.
async fn at_keycloak(chromium: &Chromium, name: &str) -> Result<()> {
    chromium.click(&format!("a[href^='/login/with/{CONNECTOR}']")).await?;
    chromium.fill("#username", name).await?;
    chromium.fill("#password", PASSWORD).await?;
    chromium.screenshot(&format!("keycloak-{name}")).await?;
    chromium.click("#kc-login").await
}

async fn in_browser(world: &World) -> Result<()> {
    let chromium = Chromium::start().await?;
    chromium.open(world.broker().public_url()?.as_str()).await?;
    chromium
        .until(&format!("document.querySelector(\"a[href^='/login/with/{CONNECTOR}']\") !== null"))
        .await?;
    chromium.screenshot("sign-in-with-provider").await?;
    at_keycloak(&chromium, "alice").await?;
    chromium.click("#make").await?;
    chromium.until("document.querySelector('#download') !== null").await?;
    chromium.screenshot("account-of-provider").await?;
    let folder = world.folder().join("downloads");
    let allow = json!({ "behavior": "allow", "downloadPath": folder });
    chromium.call("Page.setDownloadBehavior", allow).await?;
    chromium.click("#download").await?;
    let file = folder.join("kubeconfig");
    let there = || async {
        Ok(if file.exists() { Probe::Ready(()) } else { Probe::NotYet("no file".to_owned()) })
    };
    probe::until("the download", STEP_TIMEOUT, there).await?;
    world.kubectl_with(&file)?.run(["get", "pods"]).await?.success().map(drop)
}

async fn by_device(world: &World, person: &Person) -> Result<()> {
    let login = person.kubectl().spawn(["tenant", "login", "--device"])?;
    let page = format!("{}device?user_code=", world.broker().public_url()?);
    let shown = || async {
        login.process().still_running()?;
        let output = login.stderr()?;
        let found = output.split_whitespace().find(|word| word.starts_with(&page));
        Ok(match found {
            Some(url) => Probe::Ready(url.to_owned()),
            None => Probe::NotYet(output),
        })
    };
    let url = probe::until("the address with the code", STEP_TIMEOUT, shown).await?;
    let chromium = Chromium::start().await?;
    chromium.open(&url).await?;
    chromium.click("button").await?;
    at_keycloak(&chromium, "alice").await?;
    chromium.click("[value=allow]").await?;
    login.finish(STEP_TIMEOUT).await?.success()?;
    person.kubectl().run(["get", "pods"]).await?.success().map(drop)
}

async fn is_admin(world: &World) -> Result<()> {
    let chromium = Chromium::start().await?;
    chromium.open(world.broker().public_url()?.as_str()).await?;
    at_keycloak(&chromium, "olivia").await?;
    chromium.until("document.body?.innerText.includes('an administrator')").await
}

async fn is_refused(world: &World, operator: &Api) -> Result<()> {
    let chromium = Chromium::start().await?;
    chromium.open(world.broker().public_url()?.as_str()).await?;
    at_keycloak(&chromium, "eve").await?;
    chromium.until("location.pathname.startsWith('/login/callback')").await?;
    chromium.until("document.querySelector('h1') !== null").await?;
    chromium.screenshot("refused-by-group").await?;
    let users = users(operator).await?;
    ensure!(users.iter().all(|user| !user.email.starts_with("eve")), "she was made a user");
    Ok(())
}

async fn users(operator: &Api) -> Result<Vec<UserInfo>> {
    let answer = operator.request(Method::GET, "users")?.send().await?.error_for_status()?;
    Ok(answer.json::<UserList>().await?.items)
}

/// Returns the number of sessions of the user with this e-mail address.
async fn sessions(operator: &Api, email: &str) -> Result<usize> {
    let users = users(operator).await?;
    let user = users.iter().find(|user| user.email == email);
    let id = user.with_context(|| format!("there is no user {email}"))?.id;
    let path = format!("users/{id}/sessions");
    let answer = operator.request(Method::GET, &path)?.send().await?.error_for_status()?;
    Ok(answer.json::<SessionList>().await?.items.len())
}
