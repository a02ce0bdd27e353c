//! The listener of model services alone.

use std::time::Duration;

use http::Method;
use integration::fault_proxy::Fault;
use integration::port;
use serde_json::json;

use super::fixture::{Client, REG, answer, builder};

/// An address on loopback whose port is free.
fn free_address() -> String {
    format!("127.0.0.1:{}", port::free().unwrap())
}

#[tokio::test]
async fn it_serves_both_prefixes_and_nothing_else() {
    let address = free_address();
    let world = builder().setting("model_services.listen", address.as_str()).start().await.unwrap();
    let main = Client::new(&world);
    assert_eq!(main.get("/user", REG).await.body, json!({"userId": "reg"}));
    let own = Client::at(&format!("http://{address}"));
    for prefix in ["/api/v1", "/gen-ai/api/v1"] {
        let user = own.get(&format!("{prefix}/user"), REG).await;
        assert_eq!(user.body, json!({"userId": "reg"}), "{prefix}");
        let stranger = own.request(Method::GET, &format!("{prefix}/namespaces"));
        answer(stranger).await.failure(401);
    }
    assert_eq!(answer(own.request(Method::GET, "/healthcheck")).await.status.as_u16(), 200);
    for path in ["/api/v1/me", "/login", "/oauth2/token", "/clusters/internal-cluster/version", "/"]
    {
        own.get(path, REG).await.failure(404);
    }
    // The same address keeps the broker from starting, and both listeners end with it.
    world.broker().stop().await.unwrap();
    assert!(own.request(Method::GET, "/healthcheck").send().await.is_err());
}

#[tokio::test]
async fn a_drain_lets_its_request_finish_and_it_has_the_certificate() {
    let address = free_address();
    let world = builder()
        .fault_proxy()
        .tls()
        .setting("model_services.listen", address.as_str())
        .start()
        .await
        .unwrap();
    let authority = world.cluster().authority().certificate();
    let own = Client::with_authority(&format!("https://{address}/api/v1"), authority);
    assert_eq!(own.get("/user", REG).await.body, json!({"userId": "reg"}));
    let plain = Client::at(&format!("http://{address}/api/v1"));
    let plain = plain.request(Method::GET, "/healthcheck").send().await;
    assert!(plain.is_err(), "it serves without TLS");

    let delay = Fault::delay(Duration::from_secs(3));
    let running = own.get_held(&world, delay, "/selfsubjectreviews", "/user", REG).await;
    let stopped = tokio::join!(world.broker().stop(), running);
    assert!(stopped.0.unwrap().success());
    assert_eq!(stopped.1.unwrap().body, json!({"userId": "reg"}));
    assert!(own.request(Method::GET, "/healthcheck").send().await.is_err());
}
