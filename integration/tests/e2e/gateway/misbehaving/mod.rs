//! Misbehaving clients: slow, oversized, not reading, or disconnected. Other clients are not
//! affected, and the broker's memory stays flat.

mod disconnects;
mod large;
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

/// Time limit of every step that waits for nobody.
const STEP_TIMEOUT: Duration = Duration::from_mins(1);
/// Limit of the broker's memory growth in MiB; these tests send a multiple of it.
const MAX_GROWTH_MIB: f64 = 24.0;

/// Creates a person with a workspace, and returns the API with their session.
async fn tenant(world: &World, name: &str) -> (Person, Api) {
    let person = world.person(name).await.unwrap();
    let api = person.api().await.unwrap();
    api.init("basic").await.unwrap();
    (person, api)
}

/// Checks that a request over a new connection succeeds.
async fn is_served(person: &Person, session: &integration::oidc::TokenResponse, world: &World) {
    let api = world.anonymous_api().unwrap().with_token(session.access_token.clone());
    let path = format!("{GATEWAY}/api/v1/namespaces/{}/configmaps", person.namespace());
    let answer = api.request(Method::GET, &path).unwrap().send();
    let answer = tokio::time::timeout(STEP_TIMEOUT, answer).await.expect("nobody answers").unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
}

/// Measures the broker's peak memory from now on.
fn memory(world: &World) -> PeakMemory {
    PeakMemory::of(world.broker().pid().unwrap()).unwrap()
}

/// Checks that the broker did not buffer the data.
fn is_flat(memory: &PeakMemory, what: &str) {
    let grown = memory.grown_mib().unwrap();
    integration::progress::print_message(&format!("{what}: the broker needed {grown:.1} MiB more"));
    assert!(grown < MAX_GROWTH_MIB, "{what}: {grown:.1} MiB more");
}
