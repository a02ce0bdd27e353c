//! The pages in a real browser, which enforces CSP, cookie and redirect rules of its own.

use std::time::Duration;

use integration::chromium::{Chromium, foreign_page};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

use crate::world::{CLIENT, EMAIL, On, PASSWORD, World, authorization_parameters, query};

fn address(world: &World, redirect: &str) -> String {
    let url = world.at("/oauth2/authorize");
    reqwest::Url::parse_with_params(&url, authorization_parameters(redirect)).unwrap().into()
}

async fn fill(chromium: &Chromium, email: &str, password: &str) {
    chromium.fill("#email", email).await.unwrap();
    chromium.fill("#password", password).await.unwrap();
    chromium.click("button").await.unwrap();
}

/// Path and query of the request that a browser sends to a loopback listener. Browsers open connections
/// ahead and ask for icons, so each connection is served on its own.
async fn called_back(listener: &TcpListener) -> String {
    let (sender, mut paths) = mpsc::channel(1);
    let accepted = async {
        loop {
            let (connection, _) = listener.accept().await.unwrap();
            tokio::spawn(serve_callback(connection, sender.clone()));
        }
    };
    tokio::select! {
        path = paths.recv() => path.unwrap(),
        () = accepted => unreachable!(),
        () = tokio::time::sleep(Duration::from_mins(1)) => panic!("the browser sends no request"),
    }
}

async fn serve_callback(mut connection: TcpStream, paths: mpsc::Sender<String>) {
    let mut request = vec![0; 4096];
    // A browser closes connections that it does not need.
    let Ok(length) = connection.read(&mut request).await else { return };
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\ndone";
    let _ = connection.write_all(answer).await;
    let text = String::from_utf8_lossy(&request[..length]);
    let path = text.split(' ').nth(1).unwrap_or_default();
    if path.starts_with("/callback") {
        let _ = paths.send(path.to_owned()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_loopback_listener_gets_the_code() {
    let world = World::start(On::Sqlite).await;
    let chromium = Chromium::start().await.unwrap();
    for host in ["127.0.0.1", "[::1]"] {
        let listener = TcpListener::bind(format!("{host}:0")).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let redirect = format!("http://{host}:{port}/callback");
        chromium.open(&address(&world, &redirect)).await.unwrap();
        chromium
            .until("getComputedStyle(document.querySelector('main')).maxWidth === '416px'")
            .await
            .unwrap();
        chromium.until("document.activeElement.id === 'email'").await.unwrap();

        chromium.screenshot("sign-in").await.unwrap();
        fill(&chromium, EMAIL, "wrong password").await;
        chromium.until("document.querySelector('[role=alert]') !== null").await.unwrap();
        chromium
            .until(&format!("document.querySelector('#email').value === '{EMAIL}'"))
            .await
            .unwrap();
        chromium.until("document.activeElement.id === 'password'").await.unwrap();
        chromium.screenshot("sign-in-wrong-password").await.unwrap();

        let (path, ()) = tokio::join!(called_back(&listener), fill(&chromium, EMAIL, PASSWORD));
        let code = query(&path, "code").unwrap();
        let form = [
            ("grant_type", "authorization_code"),
            ("client_id", CLIENT),
            ("redirect_uri", &*redirect),
            ("code_verifier", crate::world::VERIFIER),
            ("code", &*code),
        ];
        world.token(&form).await.tokens();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_submits_to_no_other_site_and_runs_no_script() {
    let world = World::start(On::Sqlite).await;
    let chromium = Chromium::start().await.unwrap();
    let thief = TcpListener::bind("127.0.0.1:0").await.unwrap();
    chromium.open(&address(&world, "http://127.0.0.1:49152/callback")).await.unwrap();
    chromium
        .until("document.readyState === 'complete' && document.forms.length > 0")
        .await
        .unwrap();
    let steal = json!(format!("http://{}/callback", thief.local_addr().unwrap()));
    chromium
        .value(&format!(
            "window.violated = []; \
             document.addEventListener('securitypolicyviolation', \
               event => violated.push(event.effectiveDirective)); \
             document.body.insertAdjacentHTML('beforeend', \
               '<img src=/x><p onclick=\"window.ran = 1\" id=p>'); \
             document.querySelector('#p').click(); \
             document.forms[0].action = {steal}; document.forms[0].noValidate = true; \
             document.querySelector('button').click()"
        ))
        .await
        .unwrap();
    for directive in ["form-action", "img-src", "script-src-attr"] {
        chromium.until(&format!("violated.includes('{directive}')")).await.unwrap();
    }
    assert_eq!(chromium.value("window.ran === undefined").await.unwrap(), true);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_code_to_paste_can_be_copied() {
    let world = World::start(On::Sqlite).await;
    let chromium = Chromium::start().await.unwrap();
    let redirect = world.at("/login/code");
    chromium.open(&address(&world, &redirect)).await.unwrap();
    fill(&chromium, EMAIL, PASSWORD).await;
    chromium.until("document.querySelector('output.code') !== null").await.unwrap();
    let code = chromium.value("document.querySelector('output.code').textContent").await.unwrap();
    let form = [
        ("grant_type", "authorization_code"),
        ("client_id", CLIENT),
        ("redirect_uri", &*redirect),
        ("code_verifier", crate::world::VERIFIER),
        ("code", code.as_str().unwrap()),
    ];
    world.token(&form).await.tokens();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_allows_a_device_in_the_browser() {
    let world = World::start(On::Sqlite).await;
    let chromium = Chromium::start().await.unwrap();
    let form = [("client_id", CLIENT), ("scope", "openid offline_access")];
    let started = world.http.post(world.at("/oauth2/device_authorization")).form(&form);
    let started: serde_json::Value = started.send().await.unwrap().json().await.unwrap();
    let text = |name: &str| started[name].as_str().unwrap().to_owned();

    // By hand first, with a mistake in it.
    chromium.open(&text("verification_uri")).await.unwrap();
    chromium.until("document.activeElement.id === 'user_code'").await.unwrap();
    chromium.fill("#user_code", "bbbb bbbb").await.unwrap();
    chromium.click("button").await.unwrap();
    chromium.until("document.querySelector('[role=alert]') !== null").await.unwrap();
    chromium.screenshot("device-wrong-code").await.unwrap();

    chromium.open(&text("verification_uri_complete")).await.unwrap();
    let code = text("user_code");
    chromium
        .until(&format!("document.querySelector('#user_code')?.value === '{code}'"))
        .await
        .unwrap();
    chromium.screenshot("device").await.unwrap();
    chromium.click("button").await.unwrap();
    fill(&chromium, EMAIL, PASSWORD).await;
    chromium.until("document.querySelector('[value=allow]') !== null").await.unwrap();
    chromium.screenshot("device-confirm").await.unwrap();
    chromium.click("[value=allow]").await.unwrap();
    chromium
        .until("document.querySelector('h1')?.textContent === 'You are signed in'")
        .await
        .unwrap();
    chromium.screenshot("device-done").await.unwrap();

    let form = [
        ("grant_type", "urn:ietf:params:oauth:grant-type:device_code"),
        ("client_id", CLIENT),
        ("device_code", &*text("device_code")),
    ];
    let tokens = world.token(&form).await.tokens();
    assert_eq!(world.me(&tokens.access).await.unwrap().email, EMAIL);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_page_cannot_act_with_the_cookie() {
    let world = World::start(On::Sqlite).await;
    let chromium = Chromium::start().await.unwrap();
    chromium.open(&world.at("/login?return_to=/login/style.css")).await.unwrap();
    fill(&chromium, EMAIL, PASSWORD).await;
    chromium.until("location.pathname === '/login/style.css'").await.unwrap();
    assert_eq!(world.number("SELECT COUNT(*) FROM sessions WHERE ended_at IS NULL").await, 1);
    // Another origin of the same site: the browser sends the cookie along with what it asks.
    let port = world.url.rsplit(':').next().unwrap();
    let page = foreign_page().await.unwrap();
    chromium.open(&page).await.unwrap();
    chromium.until("document.querySelector('p') !== null").await.unwrap();
    let target = format!("http://127.0.0.1:{port}/api/v1");
    for (what, expected) in [
        (format!("fetch('{target}/me', {{credentials: 'include'}}).then(r => r.text())"), "failed"),
        (
            format!(
                "fetch('{target}/auth/logout', {{method: 'POST', mode: 'no-cors', \
                 credentials: 'include'}}).then(r => r.type)"
            ),
            "opaque",
        ),
    ] {
        let value = chromium.value(&format!("{what}.catch(() => 'failed')")).await.unwrap();
        assert_eq!(value, expected, "{what}");
    }
    assert_eq!(world.number("SELECT COUNT(*) FROM sessions WHERE ended_at IS NULL").await, 1);
    // The person still may.
    chromium.open(&world.at("/api/v1/me")).await.unwrap();
    chromium.until(&format!("document.body?.innerText.includes('{EMAIL}')")).await.unwrap();
}
