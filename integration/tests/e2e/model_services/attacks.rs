//! What a caller, or an API server, could do to the broker.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use http::{HeaderMap, Method, StatusCode, header};
use integration::fault_proxy::{Fault, RecordedRequest, Rule};
use integration::probe::{self, Probe};
use integration::world::World;
use serde_json::json;

use super::fixture::{Client, NONE, ONE, REG, TIMEOUT, builder, namespace_of, world};

fn json_answer(body: String) -> Fault {
    let content_type = "application/json".parse().unwrap();
    let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, content_type)]);
    Fault::Respond { status: StatusCode::OK, headers, body }
}

fn lists_models(seen: &RecordedRequest) -> bool {
    seen.is(&Method::GET, "/inferenceservices") && !seen.is_as_broker()
}

#[tokio::test]
async fn endless_and_huge_lists_fail_the_request_and_nothing_else() {
    let world = world().await;
    let client = Client::new(&world);
    namespace_of(&world, "attacks-lists", "reg", "admin").await;
    let path = "/aaa/models?namespace=attacks-lists";
    let proxy = world.proxy().unwrap();
    let item = json!({"metadata": {"name": "m"}, "spec": "x".repeat(1024 * 1024)});
    let huge = json!({"items": vec![item; 34], "metadata": {}}).to_string();
    let endless = json!({"items": [], "metadata": {"continue": "next"}}).to_string();
    let deep = format!("{}{}", "{\"items\":[{\"spec\":".to_owned() + &"[".repeat(500_000), "1");
    let objects =
        json!({"items": vec![json!({"metadata": {"name": "m"}}); 10_001], "metadata": {}});
    for body in [huge, endless, deep, objects.to_string(), "null".to_owned(), String::new()] {
        proxy.add(Rule::new(json_answer(body)).when(lists_models));
        client.get(path, REG).await.failure(500);
        proxy.clear();
    }
    let page = |seen: &RecordedRequest| lists_models(seen) && seen.query.contains("continue=next");
    assert!(proxy.count(page) <= 100);
    client.get(path, REG).await.data();
    assert!(world.broker().is_running());
}

#[tokio::test]
async fn a_list_of_slow_pages_ends_after_thirty_seconds() {
    let world = world().await;
    let client = Client::new(&world);
    namespace_of(&world, "attacks-slow", "reg", "admin").await;
    let proxy = world.proxy().unwrap();
    let endless = json!({"items": [], "metadata": {"continue": "next"}}).to_string();
    proxy.add(Rule::new(Fault::delay(Duration::from_secs(4))).when(lists_models));
    let pages = proxy.add(Rule::new(json_answer(endless)).when(lists_models));
    let started_at = Instant::now();
    client.get("/aaa/models?namespace=attacks-slow", REG).await.failure(500);
    // A busy machine has time for fewer pages.
    assert!(started_at.elapsed() < Duration::from_secs(55), "{:?}", started_at.elapsed());
    assert!((2..=8).contains(&pages.fired()), "{pages:?}");
    proxy.clear();
    let listed = client.get("/aaa/models?namespace=attacks-slow", REG).await;
    listed.data();
    let is_it = |line: &&str| line.contains(listed.request_id()) && line.contains("upstream_calls");
    let line = probe::until("the line of the request", TIMEOUT, || async {
        let log = world.broker().log()?;
        Ok(match log.lines().find(is_it) {
            Some(line) => Probe::Ready(line.to_owned()),
            None => Probe::NotYet("there is none".to_owned()),
        })
    })
    .await
    .unwrap();
    // The review, three lists, and whether the namespace exists.
    assert!(line.contains("attacks-slow"), "{line}");
    assert!(line.contains("upstream_calls=5") || line.contains("\"upstream_calls\":5"), "{line}");
}

#[tokio::test]
async fn an_address_that_tries_tokens_is_slowed_down() {
    let world = builder().fault_proxy().start().await.unwrap();
    let client = Client::new(&world);
    assert_eq!(client.get("/user", REG).await.body, json!({"userId": "reg"}));
    for round in 0..10 {
        let tries = (0..10).map(|number| {
            let client = client.clone();
            async move { client.get("/user", &format!("guess-{round}-{number}")).await }
        });
        for answer in join_all(tries).await {
            answer.failure(401);
        }
    }
    let series = "tenant_broker_model_services_tokens_refused_total";
    assert!((world.broker().metric(series).await.unwrap() - 100.0).abs() < f64::EPSILON);
    let started_at = Instant::now();
    let later = join_all((0..50).map(|number| {
        let client = client.clone();
        async move { client.get("/user", &format!("guess-later-{number}")).await }
    }));
    let (refused, closed): (Vec<_>, Vec<_>) =
        later.await.into_iter().partition(|answer| answer.status == StatusCode::UNAUTHORIZED);
    let seconds = usize::try_from(started_at.elapsed().as_secs()).unwrap();
    assert!(refused.len() <= 2 + seconds, "one a second: {refused:?}");
    for answer in closed {
        answer.failure(429);
        assert!(answer.headers.contains_key("retry-after"), "{answer:?}");
    }
    // The API server accepted this token before.
    assert_eq!(client.get("/user", REG).await.body, json!({"userId": "reg"}));
    // A new one gets in after a second, and is known then.
    probe::until("a new token to pass", TIMEOUT, || async {
        let answer = client.get("/user", NONE).await;
        let passes = answer.status == StatusCode::OK;
        Ok(if passes { Probe::Ready(()) } else { Probe::NotYet(format!("{answer:?}")) })
    })
    .await
    .unwrap();
    client.get("/user", "guess-last").await;
    assert_eq!(client.get("/user", NONE).await.body, json!({"userId": "none"}));
}

/// A proxy in front of the API server may answer without a look at the token.
#[tokio::test]
async fn answers_that_are_no_success_exempt_no_token_from_limits() {
    let world = builder().fault_proxy().start().await.unwrap();
    let (client, proxy) = (Client::new(&world), world.proxy().unwrap());
    let tokens: Vec<String> = (0..20).map(|number| format!("unchecked-{number}")).collect();
    for (number, token) in tokens.iter().enumerate() {
        let status = [StatusCode::FOUND, StatusCode::BAD_REQUEST, StatusCode::FORBIDDEN];
        let (headers, body) = (HeaderMap::new(), "an answer of a proxy".to_owned());
        let fault = Fault::Respond { status: status[number % 3], headers, body };
        proxy.add(Rule::new(fault).when(|seen| !seen.is_as_broker()));
        let answer = client.get("/user", token).await;
        assert!(!answer.status.is_success() && answer.status != 401, "{answer:?}");
        proxy.clear();
    }
    for number in 0..100 {
        client.get("/user", &format!("guess-{number}")).await.failure(401);
    }
    let started_at = Instant::now();
    let answers = join_all(tokens.iter().map(|token| client.get("/user", token))).await;
    let reached = answers.iter().filter(|answer| answer.status == StatusCode::UNAUTHORIZED);
    let seconds = usize::try_from(started_at.elapsed().as_secs()).unwrap();
    assert!(reached.count() <= 2 + seconds, "one a second: {answers:?}");
}

/// Sends a hundred requests with these tokens whose clients leave before the API server answers.
async fn abandon(world: &World, client: &Client, token: impl Fn(usize) -> String) {
    let proxy = world.proxy().unwrap();
    let held = proxy.add(
        Rule::new(Fault::before(|_| std::future::pending()))
            .when(|seen| seen.path.ends_with("/selfsubjectreviews")),
    );
    for round in 1..=10 {
        let guesses: Vec<_> = (0..10)
            .map(|number| {
                let (client, guess) = (client.clone(), token(round * 10 + number));
                tokio::spawn(async move { client.get("/user", &guess).await })
            })
            .collect();
        probe::until("the guesses to reach the API server", TIMEOUT, || async {
            let reached = held.fired();
            let is_reached = reached >= round * 10;
            Ok(if is_reached { Probe::Ready(()) } else { Probe::NotYet(format!("{reached}")) })
        })
        .await
        .unwrap();
        for guess in &guesses {
            guess.abort();
        }
        // They count against the requests at once of a token until the broker notices.
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    proxy.clear();
}

/// Sends requests with these tokens until one is closed out, because the broker notices after a moment
/// that the last clients left. The requests themselves are too few to close anybody out.
async fn until_closed_out(client: &Client, token: impl Fn(usize) -> String) {
    let mut statuses = Vec::new();
    for number in 0..50 {
        let answer = client.get("/user", &token(number)).await;
        statuses.push(answer.status);
        if answer.status == StatusCode::TOO_MANY_REQUESTS {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{statuses:?}");
}

#[tokio::test]
async fn tokens_of_clients_that_leave_before_the_answer_count_as_refused() {
    let world = builder().fault_proxy().start().await.unwrap();
    let client = Client::new(&world);
    abandon(&world, &client, |number| format!("left-{number}")).await;
    until_closed_out(&client, |number| format!("later-{number}")).await;
}

#[tokio::test]
async fn a_token_whose_clients_always_leave_is_closed_out_alone() {
    let world = builder().fault_proxy().start().await.unwrap();
    let client = Client::new(&world);
    // A valid one, which the API server never gets to accept.
    abandon(&world, &client, |_| ONE.to_owned()).await;
    // A request that is answered before the last client is noticed would have it accepted.
    let broker = world.broker();
    let series = r#"tenant_broker_requests_total{method="GET",area="models",status="0"}"#;
    probe::until("the last client to be noticed", TIMEOUT, || async {
        let left = broker.metric(series).await?;
        Ok(if left >= 100.0 { Probe::Ready(()) } else { Probe::NotYet(left.to_string()) })
    })
    .await
    .unwrap();
    client.get("/user", ONE).await.failure(429);
    for (token, user) in [(REG, "reg"), (NONE, "none")] {
        assert_eq!(client.get("/user", token).await.body, json!({ "userId": user }));
    }
}

#[tokio::test]
async fn a_client_that_repeats_an_invalid_token_is_closed_out_alone() {
    let world = builder().fault_proxy().start().await.unwrap();
    let client = Client::new(&world);
    for _ in 0..100 {
        client.get("/user", "expired").await.failure(401);
    }
    let closed = client.get("/user", "expired").await;
    closed.failure(429);
    assert!(closed.headers.contains_key("retry-after"), "{closed:?}");
    for (token, user) in [(REG, "reg"), (NONE, "none")] {
        assert_eq!(client.get("/user", token).await.body, json!({ "userId": user }));
    }
}

#[tokio::test]
async fn a_token_has_its_own_rate_and_requests_at_once() {
    let world = builder()
        .fault_proxy()
        .setting("model_services.requests_per_second", 5)
        .setting("model_services.requests_at_once", 2)
        .start()
        .await
        .unwrap();
    let client = Client::new(&world);
    let proxy = world.proxy().unwrap();
    // Two requests that the API server does not answer take the places of this token.
    let held = proxy.add(
        Rule::new(Fault::before(|_| std::future::pending()))
            .when(|seen| seen.has_token(REG) && seen.path.ends_with("/selfsubjectreviews")),
    );
    let running: Vec<_> = (0..2)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.get("/user", REG).await })
        })
        .collect();
    while held.fired() < 2 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    client.get("/user", REG).await.failure(429);
    assert_eq!(client.get("/user", NONE).await.body, json!({"userId": "none"}));
    // A client that leaves ends its calls, so there is room again.
    for task in &running {
        task.abort();
    }
    proxy.clear();
    probe::until("room for the token", TIMEOUT, || async {
        let answer = client.get("/user", REG).await;
        let is_served = answer.status == StatusCode::OK;
        Ok(if is_served { Probe::Ready(()) } else { Probe::NotYet(format!("{answer:?}")) })
    })
    .await
    .unwrap();
    let many = join_all((0..100).map(|_| client.get("/user", NONE))).await;
    let refused = many.iter().filter(|answer| answer.status.as_u16() == 429).count();
    assert!(refused >= 50, "{refused}");
}
