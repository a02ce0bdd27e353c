//! Clients that are a burden: slow, large, deaf, or gone. Nobody else notices, and the broker needs
//! no more memory for them.

mod large;
mod leaving;
mod refused;
mod slow;
mod unread;

use std::time::Duration;

use http::{Method, StatusCode};
use integration::api::Api;
use integration::measure::process_memory::PeakMemory;
use integration::person::Person;
use integration::world::World;

use super::GATEWAY;

/// How long anything may take that does not have to wait for anybody.
const PATIENCE: Duration = Duration::from_secs(20);
/// MiB that the broker may need more meanwhile; what it is sent in these tests is a multiple of it.
const FLAT: f64 = 24.0;

/// A person with a workspace, and the API as they call it.
async fn tenant(world: &World, name: &str) -> (Person, Api) {
    let person = world.person(name).await.unwrap();
    let api = person.api().await.unwrap();
    api.init("basic").await.unwrap();
    (person, api)
}

/// Somebody asks over a new connection, and is answered.
async fn is_served(person: &Person, session: &integration::oidc::Session, world: &World) {
    let api = world.stranger().unwrap().with_token(session.access_token.clone());
    let path = format!("{GATEWAY}/api/v1/namespaces/{}/configmaps", person.namespace());
    let answer = api.request(Method::GET, &path).unwrap().send();
    let answer = tokio::time::timeout(PATIENCE, answer).await.expect("nobody answers").unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
}

/// What the broker needs from now on.
fn memory(world: &World) -> PeakMemory {
    PeakMemory::of(world.broker().pid().unwrap()).unwrap()
}

/// It did not keep what it was sent.
fn is_flat(memory: &PeakMemory, what: &str) {
    let grown = memory.grown_mib().unwrap();
    integration::progress::say(&format!("{what}: the broker needed {grown:.1} MiB more"));
    assert!(grown < FLAT, "{what}: {grown:.1} MiB more");
}
