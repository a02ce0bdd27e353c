//! The sign-in page: binding to the browser, password checks and rate limits.

use std::time::{Duration, Instant};

use reqwest::header;
use tenant_broker::{base::throttle::WindowQuota, identity::CreateUserError};
use tenant_shared::Role;

use crate::world::{
    BrowserSignIn, EMAIL, On, PASSWORD, REDIRECT, World, client_at, location, on_both_engines,
    query,
};

on_both_engines!(
    a_correct_password_redirects_to_the_client_with_a_code,
    another_browser_cannot_complete_a_sign_in,
    a_sign_in_works_once_and_expires,
    an_unknown_account_a_wrong_password_and_a_suspended_one_look_the_same,
    failures_of_one_account_are_limited_in_any_spelling,
    failures_of_one_address_are_limited_whatever_the_account,
    of_concurrent_guesses_few_count,
    of_concurrent_guesses_few_are_computed,
    malformed_and_large_bodies_are_refused,
    a_code_to_paste_is_shown_and_lasts_longer,
    a_user_is_created_once,
);

async fn a_correct_password_redirects_to_the_client_with_a_code(on: On) {
    let world = World::start(on).await;
    let attempt = BrowserSignIn::begin(&world, REDIRECT).await;
    let page = attempt.page(&world).await;
    assert_eq!(page.status(), 200);
    let policy = page.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap().to_owned();
    assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"));
    assert!(policy.ends_with("form-action 'self' http://127.0.0.1:49152"), "{policy}");
    assert_eq!(page.headers()[header::REFERRER_POLICY], "same-origin");
    assert_eq!(page.headers()[header::CACHE_CONTROL], "no-store");
    assert!(page.text().await.unwrap().contains(&attempt.handle));

    let response = attempt.post(&world, " Ada@Example.COM ", PASSWORD).await;
    assert_eq!(response.status(), 303);
    let to = location(&response);
    assert!(to.starts_with("http://127.0.0.1:49152/callback?"), "{to}");
    assert!(query(to, "code").unwrap().starts_with("tbc_"));
    assert_eq!(query(to, "state").as_deref(), Some("a state & more"));
    assert_eq!(query(to, "iss").as_deref(), Some(world.url.as_str()));
    let cookie = response.headers()[header::SET_COOKIE].to_str().unwrap();
    assert!(cookie.contains("Max-Age=0"), "the cookie is taken back: {cookie}");
    assert_eq!(world.count_audited("SignIn").await, 1);
    let style = world.http.get(world.at("/login/style.css")).send().await.unwrap();
    assert_eq!(style.headers()[header::CONTENT_TYPE], "text/css; charset=utf-8");
}

async fn another_browser_cannot_complete_a_sign_in(on: On) {
    let world = World::start(on).await;
    let (mine, theirs) = (
        BrowserSignIn::begin(&world, REDIRECT).await,
        BrowserSignIn::begin(&world, REDIRECT).await,
    );
    let name = mine.cookie.split('=').next().unwrap();
    let secret_of_theirs = theirs.cookie.split('=').nth(1).unwrap();
    for cookie in [
        String::new(),
        theirs.cookie.clone(),
        format!("{name}={secret_of_theirs}"),
        format!("{name}=tbb_guess"),
        format!("{0}; {0}", mine.cookie),
    ] {
        let thief = BrowserSignIn { cookie: cookie.clone(), ..mine.clone() };
        assert_eq!(thief.page(&world).await.status(), 400, "{cookie}");
        assert_eq!(thief.post(&world, EMAIL, PASSWORD).await.status(), 400, "{cookie}");
    }
    // Two tabs do not disturb each other.
    let both = format!("{}; {}", theirs.cookie, mine.cookie);
    let mine = BrowserSignIn { cookie: both.clone(), ..mine };
    let theirs = BrowserSignIn { cookie: both, ..theirs };
    assert_eq!(mine.post(&world, EMAIL, PASSWORD).await.status(), 303);
    assert_eq!(theirs.post(&world, EMAIL, PASSWORD).await.status(), 303);
}

async fn a_sign_in_works_once_and_expires(on: On) {
    let world = World::start(on).await;
    let attempt = BrowserSignIn::begin(&world, REDIRECT).await;
    let code = attempt.code(&world).await;
    world.token(&attempt.redeeming(&code)).await.tokens();
    assert_eq!(attempt.post(&world, EMAIL, PASSWORD).await.status(), 400, "a second time");
    assert_eq!(attempt.page(&world).await.status(), 400);

    let late = BrowserSignIn::begin(&world, REDIRECT).await;
    world.advance_seconds(599);
    assert_eq!(late.page(&world).await.status(), 200);
    world.advance_seconds(1);
    assert_eq!(late.page(&world).await.status(), 400);
    assert_eq!(late.post(&world, EMAIL, PASSWORD).await.status(), 400);
    let unknown = BrowserSignIn { handle: "tbq_unknown".into(), ..late };
    assert_eq!(unknown.page(&world).await.status(), 400);

    // A person clicks twice: the browser drops the first answer and follows the second.
    let twice = BrowserSignIn::begin(&world, REDIRECT).await;
    let (dropped, followed) = (twice.code(&world).await, twice.code(&world).await);
    world.token(&twice.redeeming(&dropped)).await.refused(400, "invalid_grant");
    world.token(&twice.redeeming(&followed)).await.tokens();
    // At the same moment: of the two codes one works, once.
    let racing = BrowserSignIn::begin(&world, REDIRECT).await;
    let (a, b) = tokio::join!(racing.code(&world), racing.code(&world));
    let (forms, mut works) = ([racing.redeeming(&a), racing.redeeming(&b)], 0);
    for form in &forms {
        works += usize::from(world.token(form).await.status == 200);
    }
    assert_eq!(works, 1);
}

async fn an_unknown_account_a_wrong_password_and_a_suspended_one_look_the_same(on: On) {
    let world = World::start(on).await;
    let attempt = BrowserSignIn::begin(&world, REDIRECT).await;
    let mut texts = Vec::new();
    for (email, password) in [
        ("ada@example.com", "wrong password"),
        ("eve@example.com", PASSWORD),
        ("not an address", "x"),
    ] {
        let response = attempt.post(&world, email, password).await;
        assert_eq!(response.status(), 401, "{email}");
        let text = response.text().await.unwrap();
        assert!(text.contains(&format!("value=\"{email}\"")), "the address stays in the form");
        assert!(!text.contains(password) || password == "x", "the password does not");
        texts.push(text.replace(email, "EMAIL"));
    }
    world.execute("UPDATE users SET status = 'suspended'").await;
    let response = attempt.post(&world, EMAIL, PASSWORD).await;
    assert_eq!(response.status(), 401);
    texts.push(response.text().await.unwrap().replace(EMAIL, "EMAIL"));
    assert!(texts.iter().all(|text| *text == texts[0]), "{texts:#?}");
    assert_eq!(world.count_audited("SignIn").await, 4);
    // The account is what it was done to: whoever tried is not known.
    let named =
        "SELECT COUNT(*) FROM audit_logs WHERE action = 'SignIn' AND subject_user_id IS NOT NULL";
    assert_eq!(world.number(named).await, 2);
    let actors = "SELECT COUNT(*) FROM audit_logs WHERE action = 'SignIn' AND user_id IS NOT NULL";
    assert_eq!(world.number(actors).await, 0);
}

/// Without the password's computation a response would take a tenth of the time. The test compares
/// the shortest of several times with a wide margin, because the machine may be busy.
#[tokio::test]
async fn an_unknown_account_takes_as_long() {
    let world = World::with(On::Sqlite, |settings| {
        settings.sign_in_account = WindowQuota { count: 100, window_seconds: 300 };
    })
    .await;
    let attempt = BrowserSignIn::begin(&world, REDIRECT).await;
    let mut shortest = [Duration::MAX; 3];
    for _ in 0..8 {
        for (email, shortest) in [EMAIL, "eve@example.com", "no address"].iter().zip(&mut shortest)
        {
            let began = Instant::now();
            assert_eq!(attempt.post(&world, email, "wrong password").await.status(), 401);
            *shortest = began.elapsed().min(*shortest);
        }
    }
    let [known, unknown, malformed] = shortest;
    assert!(unknown > known / 4 && malformed > known / 4, "{shortest:?}");
}

async fn failures_of_one_account_are_limited_in_any_spelling(on: On) {
    let world = World::start(on).await;
    let attempt = BrowserSignIn::begin(&world, REDIRECT).await;
    for number in 0..5 {
        // However it is typed, it is the same account.
        let email = if number % 2 == 0 { EMAIL } else { " ADA@example.com" };
        let response = attempt.post(&world, email, "wrong").await;
        assert_eq!(response.status(), 401, "{number}");
    }
    let response = attempt.post(&world, EMAIL, PASSWORD).await;
    assert_eq!(response.status(), 429, "even the right password");
    let wait: u64 = response.headers()[header::RETRY_AFTER].to_str().unwrap().parse().unwrap();
    assert!((1..=300).contains(&wait), "{wait}");
    assert!(response.text().await.unwrap().contains("Too many attempts"));
    // Another account is not concerned, nor is this one once the window has passed.
    world
        .identity
        .create_user("bob@example.com", "bobs password".into(), Role::User)
        .await
        .unwrap();
    let bob = BrowserSignIn::begin(&world, REDIRECT).await;
    assert_eq!(bob.post(&world, "bob@example.com", "bobs password").await.status(), 303);
    world.advance_seconds(wait);
    assert_eq!(attempt.post(&world, EMAIL, PASSWORD).await.status(), 303);
}

async fn failures_of_one_address_are_limited_whatever_the_account(on: On) {
    let world = World::with(on, |settings| {
        settings.sign_in_address = WindowQuota { count: 3, window_seconds: 60 };
    })
    .await;
    let attempt = BrowserSignIn::begin(&world, REDIRECT).await;
    // Successes do not count.
    for _ in 0..4 {
        BrowserSignIn::begin(&world, REDIRECT).await.code(&world).await;
    }
    for number in 0..3 {
        let email = format!("guess{number}@example.com");
        assert_eq!(attempt.post(&world, &email, "wrong").await.status(), 401);
    }
    assert_eq!(attempt.post(&world, "guess4@example.com", "wrong").await.status(), 429);
    let elsewhere = client_at("127.0.2.1");
    let response = attempt.post_from(&elsewhere, &world, EMAIL, PASSWORD).await;
    assert_eq!(response.status(), 303, "people elsewhere are not concerned");
}

/// Guesses that all start before the first has failed pass the first check of the limit. Still, the
/// correct one counts only if it is among the first.
async fn of_concurrent_guesses_few_count(on: On) {
    let world = World::with(on, |settings| {
        settings.sign_in_account = WindowQuota { count: 2, window_seconds: 300 };
    })
    .await;
    let attempt = BrowserSignIn::begin(&world, REDIRECT).await;
    let mut wrong = tokio::task::JoinSet::new();
    for _ in 0..24 {
        let (attempt, http, url) = (attempt.clone(), world.http.clone(), world.at("/login"));
        wrong.spawn(async move {
            let form = [("request", &*attempt.handle), ("email", EMAIL), ("password", "wrong")];
            let request = http.post(url).header(header::COOKIE, &attempt.cookie).form(&form);
            request.send().await.unwrap().status().as_u16()
        });
    }
    // At the first failure all of the others are on their way; the right one is sent behind them.
    assert!(matches!(wrong.join_next().await, Some(Ok(401 | 429))));
    let right = attempt.post(&world, EMAIL, PASSWORD).await;
    let statuses = wrong.join_all().await;
    assert_eq!(right.status(), 429, "{statuses:?}");
}

/// A computed guess leaves a row of the audit trail when it fails. Beyond the allowance there may
/// be the guesses that were being computed when the last allowed one failed: four at most.
async fn of_concurrent_guesses_few_are_computed(on: On) {
    let world = World::with(on, |settings| {
        settings.sign_in_account = WindowQuota { count: 2, window_seconds: 300 };
    })
    .await;
    let attempt = BrowserSignIn::begin(&world, REDIRECT).await;
    let mut wrong = tokio::task::JoinSet::new();
    for _ in 0..60 {
        let (attempt, http, url) = (attempt.clone(), world.http.clone(), world.at("/login"));
        wrong.spawn(async move {
            let form = [("request", &*attempt.handle), ("email", EMAIL), ("password", "wrong")];
            let request = http.post(url).header(header::COOKIE, &attempt.cookie).form(&form);
            request.send().await.unwrap().status().as_u16()
        });
    }
    let statuses = wrong.join_all().await;
    assert!(statuses.iter().all(|status| [401, 429].contains(status)), "{statuses:?}");
    let computed = world.count_audited("SignIn").await;
    assert!((2..=5).contains(&computed), "{computed} were computed");
}

async fn malformed_and_large_bodies_are_refused(on: On) {
    let world = World::start(on).await;
    let attempt = BrowserSignIn::begin(&world, REDIRECT).await;
    let post = || world.http.post(world.at("/login")).header(header::COOKIE, &attempt.cookie);
    let handle = attempt.handle.as_str();
    let fields = [("request", handle), ("email", EMAIL), ("password", PASSWORD)];
    let json = post().json(&serde_json::json!({ "request": handle })).send().await.unwrap();
    assert_eq!(json.status(), 400);
    let padding = "x".repeat(9000);
    let large = [&fields[..], &[("x", &*padding)]].concat();
    assert_eq!(post().form(&large).send().await.unwrap().status(), 413);
    let huge = post().form(&[("x", "x".repeat(100_000))]).send().await.unwrap();
    assert_eq!(huge.status(), 413);
    let twice = [&fields[..], &[("password", "another")]].concat();
    assert_eq!(post().form(&twice).send().await.unwrap().status(), 400);
    let long = [("request", handle), ("email", EMAIL), ("password", &*"x".repeat(1025))];
    assert_eq!(post().form(&long).send().await.unwrap().status(), 400);
    assert_eq!(post().form(&fields).send().await.unwrap().status(), 303, "the form still works");
    assert_eq!(world.count_audited("SignIn").await, 1);
}

async fn a_code_to_paste_is_shown_and_lasts_longer(on: On) {
    let world = World::start(on).await;
    let attempt = BrowserSignIn::begin(&world, &world.at("/login/code")).await;
    let response = attempt.post(&world, EMAIL, PASSWORD).await;
    let to = location(&response).to_owned();
    let code = query(&to, "code").unwrap();
    let page = world.http.get(&to).send().await.unwrap();
    assert_eq!(page.status(), 200);
    let policy = page.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap().to_owned();
    assert!(policy.ends_with("form-action 'none'"), "{policy}");
    assert!(page.text().await.unwrap().contains(&format!(">{code}<")));
    world.advance_seconds(299);
    world.token(&attempt.redeeming(&code)).await.tokens();

    for text in ["tbc_%3Cscript%3Ealert(1)%3C/script%3E", "call-0800-evil", ""] {
        let url = world.at(&format!("/login/code?code={text}"));
        let page = world.http.get(url).send().await.unwrap();
        assert_eq!(page.status(), 400);
        let html = page.text().await.unwrap();
        assert!(!html.contains("alert") && !html.contains("evil"), "{html}");
    }
}

async fn a_user_is_created_once(on: On) {
    let world = World::start(on).await;
    let make = |email: &'static str, password: &'static str| {
        world.identity.create_user(email, password.into(), Role::Admin)
    };
    let taken = make("ADA@example.com", "another password").await.unwrap_err();
    assert!(matches!(&taken, CreateUserError::Exists(email) if email.as_str() == EMAIL), "{taken}");
    assert!(taken.to_string().contains("exists already"));
    assert!(matches!(make("ada", "another password").await, Err(CreateUserError::Email(_))));
    assert!(matches!(make("bob@b.de", "short").await, Err(CreateUserError::Password(_))));
    assert_eq!(world.number("SELECT COUNT(*) FROM users").await, 1);
    assert_eq!(world.count_audited("CreateUser").await, 1);
}
