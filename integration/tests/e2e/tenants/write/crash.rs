//! Writes of Tenants while the broker is killed, or the cluster fails.

use http::{Method, StatusCode};
use integration::api::Api;
use integration::fault_proxy::{Fault, RecordedRequest, Rule};
use integration::world::World;
use tenant_shared::{Code, TenantWriteResult};

use super::{SOLAR, TENANT_BROKER, apply, builder, create, outcomes, rows, spec, start, tenant};
use crate::refused;

/// Whether a request persists a write of a Tenant.
fn is_write(request: &RecordedRequest, method: &Method) -> bool {
    request.method == *method
        && request.path.starts_with("/apis/tenant-broker.io/v1alpha1/tenants")
        && !request.path.ends_with("/status")
        && !request.query.contains("dryRun")
}

/// Adds a fault to the next write of a Tenant with this method.
fn fault_at(world: &World, method: Method, fault: Fault) {
    let rule = Rule::new(fault).when(move |request| is_write(request, &method)).nth(1);
    world.proxy().unwrap().add(rule);
}

fn kill(world: &World) -> impl Fn(RecordedRequest) -> std::future::Ready<()> + use<> {
    let broker = world.broker().clone();
    move |_| {
        broker.kill();
        std::future::ready(())
    }
}

#[tokio::test]
async fn a_write_that_is_interrupted_is_on_record_and_can_be_repeated() {
    let (world, admin, operator) = start(builder().fault_proxy()).await;
    // Killed after the audit row is committed, and the API server never sees the request.
    fault_at(&world, Method::POST, Fault::before(kill(&world)));
    fault_at(&world, Method::POST, Fault::CutBefore);
    operator.create_tenant(&create(SOLAR, spec("alice", 1)), "").await.unwrap_err();
    world.proxy().unwrap().clear();
    world.broker().crash_and_restart().await.unwrap();
    assert_eq!(outcomes(&operator, "CreateTenant").await, ["success"]);
    assert_eq!(refused(operator.tenant_spec(SOLAR).await).code(), Code::NotFound);
    let applied = operator.apply_tenant(SOLAR, &apply(spec("alice", 1)), "").await.unwrap();
    assert_eq!(applied.result, TenantWriteResult::Created);

    // Killed after the API server carried it out.
    fault_at(&world, Method::PUT, Fault::after(kill(&world)));
    operator.apply_tenant(SOLAR, &apply(spec("alice", 2)), "").await.unwrap_err();
    world.proxy().unwrap().clear();
    world.broker().crash_and_restart().await.unwrap();
    let row = rows(&operator, "ChangeTenant").await.pop().unwrap();
    assert!(row.reason.unwrap().contains("quota: 1 -> 2"));
    let live = tenant(&admin, TENANT_BROKER, SOLAR).await;
    assert_eq!(live["spec"]["namespaceOptions"]["quota"], 2);
    let applied = operator.apply_tenant(SOLAR, &apply(spec("alice", 2)), "").await.unwrap();
    assert_eq!(applied.result, TenantWriteResult::Unchanged);

    a_cluster_that_fails_gives_an_error(&world, &operator).await;
    a_deletion_is_repeated(&world, &operator).await;
}

async fn a_cluster_that_fails_gives_an_error(world: &World, operator: &Api) {
    let status = Fault::respond;
    for (fault, expected) in [
        (status(StatusCode::INTERNAL_SERVER_ERROR), Code::ClusterUnavailable),
        (status(StatusCode::TOO_MANY_REQUESTS), Code::ClusterUnavailable),
        (Fault::CutBefore, Code::ClusterUnavailable),
        (status(StatusCode::FORBIDDEN), Code::Forbidden),
    ] {
        fault_at(world, Method::PUT, fault);
        let failed = refused(operator.apply_tenant(SOLAR, &apply(spec("alice", 3)), "").await);
        assert_eq!(failed.code(), expected, "{failed}");
        world.proxy().unwrap().clear();
    }
    // A change by somebody else meanwhile: the broker reads again.
    fault_at(world, Method::PUT, status(StatusCode::CONFLICT));
    let written = operator.apply_tenant(SOLAR, &apply(spec("alice", 3)), "").await.unwrap();
    assert_eq!(written.result, TenantWriteResult::Configured);
    world.proxy().unwrap().clear();
    let outcomes = outcomes(operator, "ChangeTenant").await;
    assert_eq!(outcomes.last().map(String::as_str), Some("success"), "{outcomes:?}");
    assert!(outcomes.contains(&"refused".to_owned()), "{outcomes:?}");
}

async fn a_deletion_is_repeated(world: &World, operator: &Api) {
    // The annotation of a deletion that was refused is taken away again.
    fault_at(world, Method::DELETE, Fault::respond(StatusCode::FORBIDDEN));
    let failed = refused(operator.delete_tenant(SOLAR, "namespaces=keep").await);
    assert_eq!(failed.code(), Code::Forbidden, "{failed}");
    world.proxy().unwrap().clear();
    let admin = world.admin_kubectl().unwrap();
    let annotations = &tenant(&admin, TENANT_BROKER, SOLAR).await["metadata"]["annotations"];
    assert_eq!(annotations.get("tenant-broker.io/on-delete"), None, "{annotations}");

    // So is that of one that failed.
    for fault in [Fault::CutBefore, Fault::respond(StatusCode::INTERNAL_SERVER_ERROR)] {
        fault_at(world, Method::DELETE, fault);
        let failed = refused(operator.delete_tenant(SOLAR, "namespaces=keep").await);
        assert_eq!(failed.code(), Code::ClusterUnavailable, "{failed}");
        world.proxy().unwrap().clear();
        let live = tenant(&admin, TENANT_BROKER, SOLAR).await;
        let annotations = &live["metadata"]["annotations"];
        assert_eq!(annotations.get("tenant-broker.io/on-delete"), None, "{annotations}");
    }
    // Killed between the annotation and the deletion.
    let recorded = outcomes(operator, "DeleteTenant").await.len();
    fault_at(world, Method::PUT, Fault::after(kill(world)));
    // Otherwise the broker might still send the deletion.
    fault_at(world, Method::PUT, Fault::CutAfter);
    operator.delete_tenant(SOLAR, "namespaces=keep").await.unwrap_err();
    world.proxy().unwrap().clear();
    world.broker().crash_and_restart().await.unwrap();
    assert_eq!(outcomes(operator, "DeleteTenant").await[recorded..], ["success"]);
    let live = tenant(&admin, TENANT_BROKER, SOLAR).await;
    let metadata = &live["metadata"];
    assert_eq!(metadata["annotations"]["tenant-broker.io/on-delete"], "keep-namespaces", "{live}");
    assert_eq!(metadata.get("deletionTimestamp"), None, "{live}");
    operator.delete_tenant(SOLAR, "namespaces=keep").await.unwrap();
    assert_eq!(refused(operator.tenant_spec(SOLAR).await).code(), Code::NotFound);
}
