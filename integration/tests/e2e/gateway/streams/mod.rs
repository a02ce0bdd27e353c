//! Streams of kubectl over a real API server to a node: they behave the same directly and through
//! the gateway, and end only when they should.

mod cut;
mod ends;
mod matrix;
mod terminal;

use std::time::Duration;

use integration::person::Person;
use integration::streams::{OpenStreams, make_pod};
use integration::world::World;

use super::through_the_gateway;

/// Name of the pod of all streams.
const POD: &str = "p";

/// Returns the same person at a machine whose kubectl connects to the API server itself.
async fn directly(person: &Person) -> Person {
    let person = person.at_another_machine("direct").unwrap();
    person.login(&[]).await.unwrap().success().unwrap();
    person
}

#[tokio::test]
async fn idle_streams_stay_open() {
    // Longer than the 30 and 60 seconds after which proxies often close idle connections; `cargo
    // acceptance streams` waits for more than ten minutes.
    let idle = Duration::from_secs(70);
    let world = World::builder().node().tls().start().await.unwrap();
    let node = world.node().unwrap();
    let alice = through_the_gateway(&world, "alice").await;
    let bob = world.person("bob").await.unwrap();
    bob.login(&[]).await.unwrap().success().unwrap();
    let mut open = Vec::new();
    for kubectl in [alice.kubectl(), bob.kubectl()] {
        make_pod(kubectl, node, POD).await.unwrap();
        open.push(OpenStreams::open(kubectl, node, POD, idle, "first").await.unwrap());
    }
    tokio::time::sleep(idle).await;
    for streams in &mut open {
        streams.exec_speaks().await.unwrap();
        streams.still_work(node, "later").await.unwrap();
    }
}
