//! Short runs of `cargo acceptance tenants`: rights in random Tenants, first requests in new
//! namespaces, and crashes.

use integration::acceptance::tenants::{
    Fixture, check_crashes, check_first_requests, check_rights,
};
use integration::world::World;

/// Another seed in each run; it is in the message of a failure.
fn seed() -> u64 {
    let bytes = integration::random::bytes(4).unwrap();
    bytes.into_iter().fold(0, |seed, byte| (seed << 8) | u64::from(byte))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everybody_has_the_rights_of_the_tenants_and_owners_use_namespaces_at_once() {
    let builder = World::builder().postgres().replicas(2);
    // Otherwise the interval could hide that a change was missed.
    let fixture = Fixture::start(builder.setting("drift_seconds", 3600)).await.unwrap();
    let (people, tenants) = (["alice", "bob", "carol"], ["solar", "lunar"]);
    check_rights(&fixture, seed(), 12, &people, &tenants).await.unwrap();
    let owner = fixture.person("owner").await.unwrap();
    check_first_requests(&fixture, &owner, "first", 20).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_is_whole_after_crashes_of_the_broker() {
    let builder = World::builder().setting("drift_seconds", 3600);
    let fixture = Fixture::start(builder).await.unwrap();
    check_crashes(&fixture, seed(), 10).await.unwrap();
}
