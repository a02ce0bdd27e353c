//! Short runs of `cargo acceptance tenants`, with a seed that stays.

use integration::acceptance::tenants::{
    Fixture, check_crashes, check_first_requests, check_rights,
};
use integration::world::{World, WorldBuilder};

const SEED: u64 = 15;

fn builder() -> WorldBuilder {
    World::builder().setting("drift_seconds", 3600)
}

#[tokio::test]
async fn people_have_exactly_the_rights_of_random_tenants() {
    let fixture = Fixture::start(builder().postgres().replicas(2)).await.unwrap();
    let people = ["alice", "bob", "carol"];
    check_rights(&fixture, SEED, 20, &people, &["solar", "lunar"]).await.unwrap();
    let owner = fixture.person("owner").await.unwrap();
    check_first_requests(&fixture, &owner, "first", 40).await.unwrap();
}

#[tokio::test]
async fn a_broker_that_is_killed_at_random_goes_on() {
    let fixture = Fixture::start(builder()).await.unwrap();
    check_crashes(&fixture, SEED, 10).await.unwrap();
}
