//! Writes at the same time, and fields that other managers have set.

use futures_util::future::join_all;
use http::StatusCode;
use integration::api::Api;
use integration::kubectl::Kubectl;
use serde_json::{Value, json};
use tenant_shared::{Code, TenantWriteResult};

use super::{
    SOLAR, TENANT_BROKER, apply, builder, create, outcomes, resource_version, spec, start, tenant,
};
use crate::refused;
use crate::tenants::with_object;

/// Applies a Tenant as a GitOps tool does.
async fn gitops(admin: &Kubectl, spec: &Value) {
    let object = json!({
        "apiVersion": TENANT_BROKER.1, "kind": "Tenant", "metadata": {"name": SOLAR}, "spec": spec,
    });
    let command = ["apply", "--server-side", "--field-manager=gitops"];
    with_object(admin, &command, object.to_string()).await.success().unwrap();
}

#[tokio::test]
async fn writes_at_once_on_two_replicas_end_in_one_of_them() {
    let (world, admin, operator) = start(builder().postgres().replicas(2)).await;
    let apis = [operator.clone(), operator.clone().at(&world.brokers()[1].url().unwrap()).unwrap()];

    let creations = (1..=10_u32).zip(apis.iter().cycle()).map(|(number, api)| async move {
        api.create_tenant(&create(SOLAR, spec("alice", number)), "").await
    });
    let (made, others): (Vec<_>, Vec<_>) =
        join_all(creations).await.into_iter().partition(Result::is_ok);
    assert_eq!(made.len(), 1, "{others:?}");
    for other in others {
        assert_eq!(refused(other).code(), Code::TenantExists);
    }

    let applications = (11..=20_u32).zip(apis.iter().cycle()).map(|(number, api)| async move {
        api.apply_tenant(SOLAR, &apply(spec("alice", number)), "").await
    });
    let mut configured = 0;
    for applied in join_all(applications).await {
        match applied {
            Ok(write) => configured += usize::from(write.result == TenantWriteResult::Configured),
            // Others were always faster.
            Err(error) => {
                let busy = error.refused().unwrap();
                assert_eq!(busy.code(), Code::WorkspaceNotReady, "{busy}");
            }
        }
    }
    assert!(configured > 0);
    let live = tenant(&admin, TENANT_BROKER, SOLAR).await;
    let quota = live["spec"]["namespaceOptions"]["quota"].as_u64().unwrap();
    assert!((11..=20).contains(&quota), "{live}");
    // Each change has a row. An attempt that was recorded and lost the race has one, too.
    let changes = outcomes(&operator, "ChangeTenant").await;
    assert!(changes.iter().filter(|it| *it == "success").count() >= configured, "{changes:?}");

    // With the version that they read only one of them wins.
    let read = operator.tenant_spec(SOLAR).await.unwrap();
    let edits = (21..=30_u32).zip(apis.iter().cycle()).map(|(number, api)| {
        let mut request = apply(spec("alice", number));
        request.generation = Some(read.generation);
        async move { api.apply_tenant(SOLAR, &request, "").await }
    });
    let (won, lost): (Vec<_>, Vec<_>) = join_all(edits).await.into_iter().partition(Result::is_ok);
    assert_eq!(won.len(), 1, "{won:?}");
    for lost in lost {
        let lost = refused(lost);
        assert_eq!((lost.status, lost.code()), (StatusCode::CONFLICT, Code::TenantChanged));
    }
    fields_of_other_managers_are_left_alone(&admin, &operator).await;
}

async fn fields_of_other_managers_are_left_alone(admin: &Kubectl, operator: &Api) {
    operator.delete_tenant(SOLAR, "").await.unwrap();
    let of_tool = json!({
        "owners": [{"kind": "User", "name": "alice"}],
        "namespaceOptions": {"quota": 3},
    });
    gitops(admin, &of_tool).await;
    let read = operator.tenant_spec(SOLAR).await.unwrap();
    assert_eq!(
        operator.apply_tenant(SOLAR, &apply(read.spec.clone()), "").await.unwrap().result,
        TenantWriteResult::Unchanged
    );

    // The broker adds fields of its own, and the tool does not fight over them.
    let mut more = read.spec.clone();
    more["owners"].as_array_mut().unwrap().push(json!({"kind": "Group", "name": "dev"}));
    more["tier"] = json!("basic");
    let added = operator.apply_tenant(SOLAR, &apply(more.clone()), "").await.unwrap();
    assert_eq!(added.changes, ["spec.owners[Group dev]: added", "spec.tier: none -> basic"]);
    let generation = added.tenant.generation;
    gitops(admin, &of_tool).await;
    let after = operator.tenant_spec(SOLAR).await.unwrap();
    assert_eq!((after.generation, &after.spec), (generation, &added.tenant.spec));

    let mut quota = after.spec.clone();
    quota["namespaceOptions"]["quota"] = json!(9);
    let mut owner = after.spec.clone();
    owner["owners"].as_array_mut().unwrap().remove(0);
    let mut both = quota.clone();
    both["owners"] = owner["owners"].clone();
    for (wanted, fields) in [
        (&quota, &["spec.namespaceOptions.quota (manager gitops)"][..]),
        (&owner, &["spec.owners[kind=User,name=alice] (manager gitops)"]),
        (&both, &["spec.namespaceOptions.quota", "spec.owners[kind=User,name=alice]"]),
    ] {
        for query in ["", "dry_run=true"] {
            let refusal =
                refused(operator.apply_tenant(SOLAR, &apply(wanted.clone()), query).await);
            let status = (refusal.status, refusal.code());
            assert_eq!(status, (StatusCode::CONFLICT, Code::FieldConflict), "{refusal}");
            for field in fields {
                assert!(refusal.body.contains(field), "{field}: {refusal}");
            }
        }
    }
    let before = resource_version(admin, SOLAR).await;
    let forced = operator.apply_tenant(SOLAR, &apply(both), "force=true").await.unwrap();
    assert_eq!(
        forced.changes,
        ["spec.namespaceOptions.quota: 3 -> 9", "spec.owners[User alice]: removed"]
    );
    assert_ne!(resource_version(admin, SOLAR).await, before);
    // What the broker has set is the broker's: its next write needs no force.
    let live = operator.tenant_spec(SOLAR).await.unwrap();
    let mut again = live.spec;
    again["namespaceOptions"]["quota"] = json!(8);
    operator.apply_tenant(SOLAR, &apply(again), "").await.unwrap();
    operator.delete_tenant(SOLAR, "").await.unwrap();
}
