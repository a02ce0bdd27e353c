//! Bodies of requests that arrive slowly.

use std::time::Duration;

use integration::probe::{self, Probe};
use tokio::{io::AsyncWriteExt as _, net::TcpStream};

use crate::world::{On, World, on_both_engines};

on_both_engines!(slow_bodies_keep_no_request_without_a_body_from_being_served);

/// Bodies of one address that are read at once.
const MAX_BODIES_PER_CLIENT: usize = 32;

async fn slow_bodies_keep_no_request_without_a_body_from_being_served(on: On) {
    let world = World::start(on).await;
    let address = world.url.strip_prefix("http://").unwrap();
    let head =
        format!("POST /oauth2/token HTTP/1.1\r\nHost: {address}\r\nContent-Length: 10\r\n\r\n");
    let mut connections = Vec::new();
    for _ in 0..MAX_BODIES_PER_CLIENT {
        let mut connection = TcpStream::connect(address).await.unwrap();
        connection.write_all(head.as_bytes()).await.unwrap();
        connections.push(connection);
    }
    let post = async || {
        let form = [("grant_type", "x")];
        world
            .http
            .post(world.at("/oauth2/token"))
            .form(&form)
            .send()
            .await
            .unwrap()
            .status()
            .as_u16()
    };
    probe::until("all places to be taken", Duration::from_secs(5), || async {
        let status = post().await;
        Ok(if status == 429 { Probe::Ready(()) } else { Probe::NotYet(status.to_string()) })
    })
    .await
    .unwrap();
    let url = world.at("/oauth2/jwks");
    for request in [world.http.get(&url), world.http.get(&url).header("content-length", "0")] {
        assert_eq!(request.send().await.unwrap().status().as_u16(), 200);
    }
    assert_eq!(post().await, 429);
    drop(connections);
    probe::until("free places", Duration::from_secs(5), || async {
        let status = post().await;
        Ok(if status == 429 { Probe::NotYet(status.to_string()) } else { Probe::Ready(()) })
    })
    .await
    .unwrap();
}
