//! Memory of many concurrent sign-ins.

use std::time::Duration;

use futures_util::future::join_all;
use integration::measure::process_memory::rss_mib;
use integration::person::Person;
use integration::probe::{self, Probe};
use integration::world::World;

/// Limit of the remaining memory in MiB; the check of one password needs 19.
const MAX_GROWTH_MIB: f64 = 16.0;

#[tokio::test]
async fn memory_of_password_checks_is_released() {
    let world = World::builder().start().await.unwrap();
    let mut people = Vec::new();
    for number in 0..8 {
        people.push(world.person(&format!("person-{number}")).await.unwrap());
    }
    people[0].sign_in().await.unwrap();
    let needed = || rss_mib(world.broker().pid().unwrap());
    let before = needed();
    for signed_in in join_all(people.iter().map(Person::sign_in)).await {
        signed_in.unwrap();
    }
    probe::until("the memory to be given back", Duration::from_secs(30), || async {
        let left = needed() - before;
        Ok(if left < MAX_GROWTH_MIB {
            Probe::Ready(())
        } else {
            Probe::NotYet(format!("{left:.1} MiB more than before"))
        })
    })
    .await
    .unwrap();
}
