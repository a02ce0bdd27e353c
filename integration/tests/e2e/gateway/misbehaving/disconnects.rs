//! Clients that disconnect in the middle: the broker releases everything.

use std::io;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream;
use http::{Method, StatusCode, header};
use http_body_util::StreamBody;
use hyper::body::{Bytes, Frame};
use integration::fault_proxy::{Fault, Rule};
use integration::probe::{self, Probe};
use integration::world::World;
use tokio::sync::mpsc;

use super::{GATEWAY, STEP_TIMEOUT, tenant};

/// Number of concurrent watches.
const WATCHES: usize = 200;
/// Number of concurrent requests whose body stalls.
const UPLOADS: usize = 40;
/// Number of descriptors for kept connections to the API server and for unrelated work.
const OTHER_CONNECTIONS: usize = 24;

/// Reports its end when it is dropped.
struct EndNotifier(mpsc::UnboundedSender<&'static str>);

impl Drop for EndNotifier {
    fn drop(&mut self) {
        let _ = self.0.send("over");
    }
}

#[tokio::test]
async fn a_request_ends_upstream_when_its_client_disconnects() {
    // Plain HTTP is HTTP/1.1, TLS is HTTP/2, where the connection stays open.
    for builder in [World::builder(), World::builder().tls()] {
        let builder = builder.fault_proxy().setting("log.level", "info");
        let world = builder.start().await.unwrap();
        let (alice, api) = tenant(&world, "alice").await;
        let maps = format!("{GATEWAY}/api/v1/namespaces/{}/configmaps", alice.namespace());
        // Makes the broker cache a token.
        let first = api.request(Method::GET, &maps).unwrap().send().await.unwrap();
        assert_eq!(first.status(), StatusCode::OK);

        let (said, mut says) = mpsc::unbounded_channel();
        let hold = Fault::before(move |_| {
            let held = EndNotifier(said.clone());
            async move {
                let _ = held.0.send("begun");
                std::future::pending::<()>().await;
            }
        });
        world.proxy().unwrap().add(Rule::new(hold).when(|seen| seen.path.ends_with("/configmaps")));
        let asking = tokio::spawn(api.request(Method::GET, &maps).unwrap().send());
        for expected in ["begun", "over"] {
            let next = tokio::time::timeout(STEP_TIMEOUT, says.recv()).await;
            let next = next.unwrap_or_else(|_| panic!("the request is not {expected}"));
            assert_eq!(next, Some(expected));
            asking.abort();
        }
    }
}

/// Returns a body that stalls.
fn unended() -> reqwest::Body {
    let begun = Frame::data(Bytes::from_static(b"{"));
    let unended = stream::iter([Ok::<_, io::Error>(begun)]).chain(stream::pending());
    reqwest::Body::wrap(StreamBody::new(unended))
}

#[tokio::test]
async fn simultaneous_disconnects_leave_nothing_open() {
    let builder = World::builder().setting("tiers.basic.gateway_streams", 300);
    let builder = builder.setting("tiers.basic.gateway_requests_per_second", 300);
    let world = builder.setting("log.level", "info").start().await.unwrap();
    let (alice, api) = tenant(&world, "alice").await;
    let pid = world.broker().pid().unwrap();
    let open = || std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    let maps = format!("{GATEWAY}/api/v1/namespaces/{}/configmaps", alice.namespace());
    let before = open();
    for _ in 0..2 {
        let watch = format!("{maps}?watch=true");
        let watches = (0..WATCHES).map(|_| api.request(Method::GET, &watch).unwrap().send());
        let watches: Vec<_> = join_all(watches).await;
        assert!(watches.iter().all(|it| it.as_ref().unwrap().status() == StatusCode::OK));
        let posts: Vec<_> = (0..UPLOADS)
            .map(|_| {
                let post = api.request(Method::POST, &maps).unwrap().body(unended());
                tokio::spawn(post.header(header::CONTENT_TYPE, "application/json").send())
            })
            .collect();
        // Watches share their connections to the API server.
        let all = WATCHES + 2 * UPLOADS - OTHER_CONNECTIONS;
        until(|| (open() > before + all).then_some(()).ok_or_else(|| "not all are open".into()))
            .await;
        drop(watches);
        for post in posts {
            post.abort();
        }
        until(|| match open().saturating_sub(before) {
            left if left < OTHER_CONNECTIONS => Ok(()),
            left => Err(format!("{left} are open")),
        })
        .await;
    }
}

async fn until(look: impl Fn() -> Result<(), String>) {
    let look = || std::future::ready(Ok(look().map_or_else(Probe::NotYet, Probe::Ready)));
    probe::until("the broker's descriptors", STEP_TIMEOUT, look).await.unwrap();
}
