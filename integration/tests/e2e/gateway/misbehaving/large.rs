//! Oversized requests, and large allowed ones.

use std::io;
use std::time::Duration;

use futures_util::stream;
use http::{Method, StatusCode, Version, header};
use http_body_util::StreamBody;
use hyper::body::{Bytes, Frame};
use integration::streams::make_pod;
use integration::world::World;
use serde_json::Value;

use super::{GATEWAY, is_flat, memory, tenant};
use crate::gateway::through_the_gateway;

const MIB: usize = 1024 * 1024;
/// Length of the upload.
const UPLOAD_BYTES: usize = 64 * MIB;

#[tokio::test]
async fn oversized_heads_are_refused_and_the_connection_survives() {
    // Plain HTTP is HTTP/1.1, TLS is HTTP/2.
    for (builder, version) in
        [(World::builder(), Version::HTTP_11), (World::builder().tls(), Version::HTTP_2)]
    {
        let world = builder.start().await.unwrap();
        let (alice, api) = tenant(&world, "alice").await;
        let path = format!("{GATEWAY}/api/v1/namespaces/{}/configmaps", alice.namespace());
        let get = || api.request(Method::GET, &path).unwrap();
        let many = |count: usize, length: usize| {
            (0..count).fold(get(), |request, number| {
                request.header(format!("x-more-{number}"), "x".repeat(length))
            })
        };
        // A header that is being read may be longer than the limit of a whole head.
        let too_long = if version == Version::HTTP_11 { 256 * 1024 } else { 80 * 1024 };
        for (what, request, status) in [
            ("a usual one", get(), StatusCode::OK),
            ("a long header", many(1, 30 * 1024), StatusCode::OK),
            ("a header that is too long", many(1, too_long), TOO_LARGE),
            ("many that are too long together", many(80, too_long / 80), TOO_LARGE),
            ("a usual one again", get(), StatusCode::OK),
        ] {
            let answer = request.send().await.unwrap();
            assert_eq!((answer.status(), answer.version()), (status, version), "{what}");
        }
        if version == Version::HTTP_11 {
            // HTTP/2 limits the size of all headers together, and not their number.
            let answer = many(200, 1).send().await.unwrap();
            assert_eq!(answer.status(), TOO_LARGE);
        }
    }
}

const TOO_LARGE: StatusCode = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;

#[tokio::test]
async fn an_oversized_body_gets_the_api_servers_response_and_is_not_buffered() {
    for builder in [World::builder(), World::builder().tls()] {
        let world = builder.setting("log.level", "info").start().await.unwrap();
        let (alice, api) = tenant(&world, "alice").await;
        let path = format!("{GATEWAY}/api/v1/namespaces/{}/configmaps", alice.namespace());
        let memory = memory(&world);
        let piece = Bytes::from(vec![b'x'; 64 * 1024]);
        for length in [4 * MIB, UPLOAD_BYTES] {
            for is_chunked in [false, true] {
                let pieces = vec![piece.clone(); length / piece.len()];
                let pieces = pieces.into_iter().map(|piece| Ok::<_, io::Error>(Frame::data(piece)));
                let mut request = api
                    .request(Method::POST, &path)
                    .unwrap()
                    .header(header::CONTENT_TYPE, "application/json")
                    .body(reqwest::Body::wrap(StreamBody::new(stream::iter(pieces))));
                if !is_chunked {
                    request = request.header(header::CONTENT_LENGTH, length);
                }
                let answer = request.send().await.unwrap();
                assert_eq!(answer.status(), StatusCode::PAYLOAD_TOO_LARGE, "{length}");
                let status: Value = answer.json().await.unwrap();
                assert_eq!(status["reason"], "RequestEntityTooLarge", "{status}");
            }
        }
        is_flat(&memory, "136 MiB in bodies");
    }
}

#[tokio::test]
async fn uploads_and_stalled_streams_are_not_buffered() {
    let builder = World::builder().node().tls().setting("log.level", "info");
    let world = builder.start().await.unwrap();
    let alice = through_the_gateway(&world, "alice").await;
    make_pod(alice.kubectl(), world.node().unwrap(), "p").await.unwrap();
    for websockets in ["true", "false"] {
        let kubectl = alice.kubectl().clone().env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", websockets);
        let memory = memory(&world);
        let count = format!("head -c {UPLOAD_BYTES} | wc -c");
        let exec = ["exec", "-i", "p", "--", "sh", "-c", &count];
        let counted = kubectl.run_with_input(exec, vec![b'x'; UPLOAD_BYTES]).await.unwrap();
        assert_eq!(counted.success().unwrap().stdout.trim(), UPLOAD_BYTES.to_string());
        is_flat(&memory, "64 MiB that are read");

        // A command that does not read: its input waits at the client.
        let exec = ["exec", "-i", "p", "--", "sh", "-c", "echo here; exec sleep 600"];
        let stuck = kubectl.command(exec).input(vec![b'x'; UPLOAD_BYTES]).spawn_captured().unwrap();
        stuck
            .until_stdout("exec", super::STEP_TIMEOUT, |said| said.contains("here"))
            .await
            .unwrap();
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(stuck.process().status().is_none(), "{:?}", stuck.stderr());
        is_flat(&memory, "64 MiB that are not read");
    }
}
