//! Streams of kubectl over a real API server to a node: the same directly and through the gateway,
//! for as long as nobody ends them, and not a moment longer.

mod cut;
mod ends;
mod matrix;
mod terminal;

use std::time::Duration;

use integration::person::Person;
use integration::streams::{OpenStreams, make_pod};
use integration::world::World;

use super::through_the_gateway;

/// The pod that everything happens in.
const POD: &str = "p";

/// The same person at a machine whose kubectl talks to the API server itself.
async fn directly(person: &Person) -> Person {
    let person = person.at_another_machine("direct").unwrap();
    person.login(&[]).await.unwrap().success().unwrap();
    person
}

#[tokio::test]
async fn what_is_idle_stays_open() {
    // Beyond the 30 and 60 seconds after which proxies often close; `cargo acceptance streams` waits
    // for longer than ten minutes.
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
