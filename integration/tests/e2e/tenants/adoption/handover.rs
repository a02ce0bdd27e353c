//! The objects of a namespace while it goes from one tenant to another, as the watches of the API
//! server show them: at no moment have both tenants a right, or one of them has it without limits.

use integration::acceptance::tenants::MoveRecorder;

use super::{Fixture, builder};

const NAMESPACE: &str = "solar-a";

async fn transfer(fixture: &Fixture, to: &str) {
    let plan = fixture.announce(to, NAMESPACE).await;
    fixture.label(&plan).await;
}

#[tokio::test]
async fn at_no_moment_have_two_tenants_rights_or_one_without_limits() {
    let fixture = Fixture::start(builder()).await;
    fixture.namespace_of("solar", NAMESPACE, "alice").await;
    fixture.until_moved("solar", NAMESPACE).await;
    let pods = [("solar", "4"), ("lunar", "3")];
    let recorder = MoveRecorder::start(&fixture.admin, NAMESPACE, &pods).await.unwrap();
    for (to, owner) in [("lunar", "carol"), ("solar", "alice"), ("lunar", "carol")] {
        transfer(&fixture, to).await;
        fixture.until_bound(to, NAMESPACE, "admin", Some(owner)).await;
        fixture.until_moved(to, NAMESPACE).await;
    }
    assert_eq!(recorder.check().unwrap(), 3);
}
