//! The listener of model services alone.

use std::net::{Ipv4Addr, TcpListener};

use http::Method;
use serde_json::json;

use super::fixture::{Client, REG, answer, builder};

/// An address on loopback whose port is free.
fn free_address() -> String {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().to_string()
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
