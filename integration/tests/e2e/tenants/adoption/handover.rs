//! The objects of a namespace while it goes from one tenant to another, as the watches of the API
//! server show them: at no moment have both tenants a right, or one of them has it without limits.

use http::{Method, StatusCode};
use integration::acceptance::tenants::MoveRecorder;
use integration::fault_proxy::{Fault, Rule};
use integration::probe::{self, Probe};

use super::{Fixture, builder, user};
use crate::tenants::reconcile::RECONCILE_TIMEOUT;

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
    // The watches of the recorder may show the last move later.
    probe::until("the events of three moves", RECONCILE_TIMEOUT, || async {
        Ok(match recorder.check() {
            Ok(3) => Probe::Ready(()),
            other => Probe::NotYet(format!("{other:?}")),
        })
    })
    .await
    .unwrap();
}

/// The next attempt does not find the RoleBindings that the first one deleted.
#[tokio::test]
async fn bindings_that_an_incomplete_move_deletes_are_on_record() {
    let fixture = Fixture::start(builder().fault_proxy()).await;
    fixture.namespace_of("solar", NAMESPACE, "alice").await;
    for name in ["made-by-owner", "stuck"] {
        fixture.bind(NAMESPACE, name, user("bob")).await;
    }
    let stuck = Rule::new(Fault::respond(StatusCode::FORBIDDEN))
        .when(|sent| sent.is(&Method::DELETE, "/rolebindings/stuck"));
    fixture.world.proxy().unwrap().add(stuck);
    let plan = fixture.announce("lunar", NAMESPACE).await;
    fixture.label(&plan).await;
    probe::until("the row of the incomplete move", RECONCILE_TIMEOUT, || async {
        let reasons = fixture.reasons("NamespaceMoved").await;
        let is_there = reasons.iter().any(|reason| {
            reason.contains("did not go to tenant lunar yet")
                && reason.contains("\"made-by-owner\"")
                && !reason.contains("\"stuck\"")
        });
        Ok(if is_there { Probe::Ready(()) } else { Probe::NotYet(format!("{reasons:?}")) })
    })
    .await
    .unwrap();
    fixture.world.proxy().unwrap().clear();
    fixture.until_moved("lunar", NAMESPACE).await;
    let reasons = fixture.reasons("NamespaceMoved").await;
    let went = reasons.iter().find(|it| it.contains("went to tenant lunar")).unwrap();
    assert!(went.contains("\"stuck\"") && !went.contains("\"made-by-owner\""), "{went}");
}
