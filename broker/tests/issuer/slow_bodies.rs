//! Bodies of requests that arrive slowly.

use std::time::Duration;

use integration::probe::{self, Probe};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
};

use crate::world::{On, World, on_both_engines};

on_both_engines!(slow_bodies_keep_no_request_without_a_body_from_being_served);

/// Bodies of one address that are read at once.
const MAX_BODIES_PER_CLIENT: usize = 32;
/// Time limit until all places are taken, or one is free.
const PLACES_TIMEOUT: Duration = Duration::from_mins(1);

/// Sends the head of a request with a body, and no body. The broker gives up after a while, so that
/// the head is sent again then.
async fn send_slowly(address: String) {
    let head =
        format!("POST /oauth2/token HTTP/1.1\r\nHost: {address}\r\nContent-Length: 10\r\n\r\n");
    loop {
        let mut connection = TcpStream::connect(&address).await.unwrap();
        // The broker answers, or closes the connection.
        if connection.write_all(head.as_bytes()).await.is_ok() {
            let _ = connection.read(&mut [0]).await;
        }
    }
}

async fn slow_bodies_keep_no_request_without_a_body_from_being_served(on: On) {
    let world = World::start(on).await;
    let address = world.url.strip_prefix("http://").unwrap();
    let mut slow = JoinSet::new();
    for _ in 0..MAX_BODIES_PER_CLIENT {
        slow.spawn(send_slowly(address.to_owned()));
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
    let all_places_are_taken = async || {
        probe::until("all places to be taken", PLACES_TIMEOUT, || async {
            let status = post().await;
            Ok(if status == 429 { Probe::Ready(()) } else { Probe::NotYet(status.to_string()) })
        })
        .await
        .unwrap();
    };
    all_places_are_taken().await;
    let url = world.at("/oauth2/jwks");
    for request in [world.http.get(&url), world.http.get(&url).header("content-length", "0")] {
        assert_eq!(request.send().await.unwrap().status().as_u16(), 200);
    }
    all_places_are_taken().await;
    slow.shutdown().await;
    probe::until("free places", PLACES_TIMEOUT, || async {
        let status = post().await;
        Ok(if status == 429 { Probe::NotYet(status.to_string()) } else { Probe::Ready(()) })
    })
    .await
    .unwrap();
}
