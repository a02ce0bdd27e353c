//! Creation, change and deletion of Tenants through the REST interface.

use http::StatusCode;
use integration::api::Api;
use integration::kubectl::Kubectl;
use integration::probe::{self, Probe};
use integration::world::World;
use serde_json::{Value, json};
use tenant_shared::{ApplyTenantRequest, Code, TenantWriteResult};

use super::{SOLAR, TENANT_BROKER, apply, builder, create, outcomes, rows, spec, start, tenant};
use crate::install::install;
use crate::refused;
use crate::tenants::reconcile::RECONCILE_TIMEOUT;
use crate::tenants::rest::until_active;
use crate::tenants::{CAPSULE, until_served, with_object};

const ALICE: &str = "alice@example.com";

#[tokio::test]
async fn administrators_create_change_and_delete_tenants() {
    let (world, admin, operator) = start(builder()).await;
    let alice = world.person("alice").await.unwrap().api().await.unwrap();
    a_tenant_is_created_and_carried_out(&admin, &operator, &alice).await;
    an_applied_tenant_is_changed_once(&admin, &operator).await;
    preconditions_hold(&operator).await;
    requests_that_are_not_valid_write_nothing(&admin, &operator).await;
    nobody_else_writes_tenants(&operator, &alice).await;
    a_tenant_with_namespaces_is_deleted_only_if_they_may_stay(&world, &operator, &alice).await;
    tenants_of_capsule_are_not_written(&world, &admin, &operator).await;
}

async fn a_tenant_is_created_and_carried_out(admin: &Kubectl, operator: &Api, alice: &Api) {
    let request = create(SOLAR, spec(ALICE, 3));
    let dry = operator.create_tenant(&request, "dry_run=true").await.unwrap();
    assert!(dry.dry_run && dry.result == TenantWriteResult::Created, "{dry:?}");
    assert_eq!(dry.tenant.spec["bindings"], "Own", "the defaults of the definition");
    assert_eq!(refused(operator.tenant_spec(SOLAR).await).code(), Code::NotFound);
    assert!(rows(operator, "CreateTenant").await.is_empty());

    let created = operator.create_tenant(&request, "").await.unwrap();
    assert_eq!((created.result, created.dry_run), (TenantWriteResult::Created, false));
    let live = tenant(admin, TENANT_BROKER, SOLAR).await;
    assert_eq!(live["metadata"]["uid"], created.tenant.uid.as_str());
    assert_eq!(live["spec"], created.tenant.spec);
    until_active(alice, SOLAR).await;
    let row = rows(operator, "CreateTenant").await.remove(0);
    let reason = row.reason.unwrap();
    let rights = format!(
        "tenant solar: ticket 7 [User {ALICE:?} gets admin; User {ALICE:?} gets \
         tenant-namespace-deleter] (spec."
    );
    assert!(reason.starts_with(&rights), "{reason}");
    assert_eq!(row.outcome, "success");

    let again = refused(operator.create_tenant(&request, "").await);
    assert_eq!((again.status, again.code()), (StatusCode::CONFLICT, Code::TenantExists));
    assert_eq!(outcomes(operator, "CreateTenant").await, ["success", "refused"]);
}

async fn an_applied_tenant_is_changed_once(admin: &Kubectl, operator: &Api) {
    // The owner loses the ClusterRole that the definition gives by default.
    let mut wanted = spec(ALICE, 4);
    wanted["owners"][0]["clusterRoles"] = json!(["admin"]);
    wanted["tier"] = json!("unknown");
    let dry = operator.apply_tenant(SOLAR, &apply(wanted.clone()), "dry_run=true").await.unwrap();
    assert_eq!((dry.result, dry.dry_run), (TenantWriteResult::Configured, true));
    assert_eq!(
        dry.changes,
        [
            "spec.namespaceOptions.quota: 3 -> 4",
            "spec.owners[User alice@example.com].clusterRoles: \
             [\"admin\",\"tenant-namespace-deleter\"] -> [\"admin\"]",
            "spec.tier: none -> unknown",
        ]
    );
    let kinds: Vec<&str> = dry.conditions.iter().map(|it| it.kind.as_str()).collect();
    assert_eq!(kinds, ["UnknownTier"], "what the broker will not carry out");
    assert!(rows(operator, "ChangeTenant").await.is_empty());

    wanted["tier"] = json!("basic");
    let request = ApplyTenantRequest { reason: Some("more".to_owned()), ..apply(wanted.clone()) };
    let written = operator.apply_tenant(SOLAR, &request, "").await.unwrap();
    assert_eq!(written.result, TenantWriteResult::Configured);
    let live = tenant(admin, TENANT_BROKER, SOLAR).await;
    assert_eq!(live["spec"], written.tenant.spec);
    let reason = rows(operator, "ChangeTenant").await.remove(0).reason.unwrap();
    let rights = format!(
        "tenant solar: more [User {ALICE:?} loses tenant-namespace-deleter] \
         (spec.namespaceOptions.quota: 3 -> 4; "
    );
    assert!(reason.starts_with(&rights), "{reason}");

    // Nothing is written or recorded again. The controller may still write the status.
    let again = operator.apply_tenant(SOLAR, &apply(wanted), "").await.unwrap();
    assert_eq!((again.result, again.changes), (TenantWriteResult::Unchanged, vec![]));
    assert_eq!(again.tenant.generation, written.tenant.generation);
    assert_eq!(outcomes(operator, "ChangeTenant").await, ["success"]);
}

async fn preconditions_hold(operator: &Api) {
    let read = operator.tenant_spec(SOLAR).await.unwrap();
    let mut wanted = read.spec.clone();
    wanted["namespaceOptions"]["quota"] = json!(2);
    let request = |uid: &str, generation: i64| ApplyTenantRequest {
        uid: Some(uid.to_owned()),
        generation: Some(generation),
        ..apply(wanted.clone())
    };
    for stale in [request(&read.uid, read.generation - 1), request("other", read.generation)] {
        let changed = refused(operator.apply_tenant(SOLAR, &stale, "").await);
        assert_eq!((changed.status, changed.code()), (StatusCode::CONFLICT, Code::TenantChanged));
    }
    // A precondition is one on a Tenant that exists.
    let missing = refused(operator.apply_tenant("lunar", &request("other", 1), "").await);
    assert_eq!(missing.code(), Code::TenantChanged);
    assert_eq!(refused(operator.tenant_spec("lunar").await).code(), Code::NotFound);
    let current = request(&read.uid, read.generation);
    let written = operator.apply_tenant(SOLAR, &current, "").await.unwrap();
    assert_eq!(written.tenant.generation, read.generation + 1);
    let deleted = refused(operator.delete_tenant(SOLAR, "uid=other").await);
    assert_eq!(deleted.code(), Code::TenantChanged);
}

async fn requests_that_are_not_valid_write_nothing(admin: &Kubectl, operator: &Api) {
    let before =
        (rows(operator, "CreateTenant").await.len(), rows(operator, "ChangeTenant").await.len());
    let with = |field: &str, value: Value| {
        let mut spec = spec(ALICE, 1);
        spec[field] = value;
        spec
    };
    let user = |name: &str| json!([{"kind": "User", "name": name}]);
    let bad_quota = json!({"items": [{"hard": {"pods": "-1"}}]});
    for (name, spec, field) in [
        ("Lunar", spec(ALICE, 1), "metadata.name"),
        ("kube-x", spec(ALICE, 1), "metadata.name"),
        ("", spec(ALICE, 1), "metadata.name"),
        ("lunar", Value::Null, "spec"),
        ("lunar", json!("x"), "spec"),
        ("lunar", json!({"owners": []}), "spec.owners"),
        ("lunar", with("owners", user("system:admin")), "spec.owners[0].name"),
        ("lunar", with("resourceQuotas", bad_quota), "spec.resourceQuotas.items[0].hard.pods"),
        ("lunar", spec(ALICE, 0), "spec.namespaceOptions.quota"),
        // Only the API server knows these.
        ("lunar", with("ownerz", user(ALICE)), "spec.ownerz"),
        ("lunar", with("tier", json!("Not A Tier")), "spec.tier"),
    ] {
        let created = refused(operator.create_tenant(&create(name, spec.clone()), "").await);
        let applied = if name.is_empty() {
            created.clone()
        } else {
            refused(operator.apply_tenant(name, &apply(spec), "").await)
        };
        for refusal in [created, applied] {
            let status = (refusal.status, refusal.code());
            assert_eq!(status, (StatusCode::BAD_REQUEST, Code::InvalidRequest), "{refusal}");
            assert!(refusal.body.contains(field), "{field}: {refusal}");
        }
    }
    let huge = with("nodeSelector", json!({"a": "x".repeat(70_000)}));
    let huge = refused(operator.apply_tenant("lunar", &apply(huge), "").await);
    assert_eq!(huge.status, StatusCode::PAYLOAD_TOO_LARGE);
    let listed = admin.json(["get", TENANT_BROKER.0]).await.unwrap();
    assert_eq!(listed["items"].as_array().unwrap().len(), 1, "{listed}");
    // What the API server refused is on record, because an administrator asked it.
    let of_server = 2;
    assert_eq!(rows(operator, "CreateTenant").await.len(), before.0 + of_server);
    assert_eq!(rows(operator, "ChangeTenant").await.len(), before.1 + of_server);
}

async fn nobody_else_writes_tenants(operator: &Api, alice: &Api) {
    let deletions = rows(operator, "DeleteTenant").await.len();
    // Not even an owner, and the answer does not depend on what exists.
    for name in [SOLAR, "lunar", "Lunar"] {
        let refusals = [
            refused(alice.create_tenant(&create(name, spec(ALICE, 9)), "").await),
            refused(alice.create_tenant(&create(name, spec(ALICE, 9)), "dry_run=true").await),
            refused(alice.apply_tenant(name, &apply(spec(ALICE, 9)), "force=true").await),
            refused(alice.apply_tenant(name, &apply(Value::Null), "").await),
            refused(alice.delete_tenant(name, "namespaces=keep").await),
            refused(alice.tenant_spec(name).await),
        ];
        for refusal in refusals {
            assert_eq!((refusal.status, refusal.code()), (StatusCode::FORBIDDEN, Code::Forbidden));
            assert!(refusal.body.contains("only an administrator"), "{refusal}");
        }
    }
    let refusals = rows(operator, "DeleteTenant").await.split_off(deletions);
    let reasons: Vec<&str> = refusals.iter().map(|row| row.reason.as_deref().unwrap()).collect();
    assert!(reasons[0].starts_with("tenant solar: only an administrator"), "{reasons:?}");
    assert!(reasons[2].starts_with("a tenant with an invalid name: "), "{reasons:?}");
    assert!(refusals.iter().all(|row| row.outcome == "refused"));
}

async fn a_tenant_with_namespaces_is_deleted_only_if_they_may_stay(
    world: &World,
    operator: &Api,
    alice: &Api,
) {
    alice.join_tenant(SOLAR).await.unwrap();
    alice.create_tenant_namespace(SOLAR, "solar-web").await.unwrap();
    let before = rows(operator, "DeleteTenant").await.len();
    let full = refused(operator.delete_tenant(SOLAR, "").await);
    assert_eq!((full.status, full.code()), (StatusCode::CONFLICT, Code::TenantNotEmpty));
    assert!(full.body.contains("tenant solar still has 1 namespaces: delete them first"), "{full}");
    let dry = operator.delete_tenant(SOLAR, "namespaces=keep&dry_run=true").await.unwrap();
    assert_eq!((dry.dry_run, dry.kept_namespaces), (true, vec!["solar-web".to_owned()]));
    let read = operator.tenant_spec(SOLAR).await.unwrap();
    let query = format!("namespaces=keep&uid={}&reason=ticket+8", read.uid);
    let deleted = operator.delete_tenant(SOLAR, &query).await.unwrap();
    assert_eq!(deleted.kept_namespaces, ["solar-web"]);
    assert!(!deleted.is_terminating && deleted.uid == read.uid, "{deleted:?}");
    assert_eq!(refused(operator.tenant_spec(SOLAR).await).code(), Code::NotFound);
    let kept = crate::object(world, &["namespace", "solar-web"]).await.unwrap().unwrap();
    assert!(kept["metadata"]["deletionTimestamp"].is_null(), "{kept}");
    probe::until("the end of the rights", RECONCILE_TIMEOUT, || async {
        let binding = ["rolebinding", "tenant-solar-admin", "-n", "solar-web"];
        let binding = crate::object(world, &binding).await?;
        Ok(binding.map_or(Probe::Ready(()), |it| Probe::NotYet(it.to_string())))
    })
    .await
    .unwrap();
    let new = rows(operator, "DeleteTenant").await.split_off(before);
    let outcomes: Vec<&str> = new.iter().map(|row| row.outcome.as_str()).collect();
    assert_eq!(outcomes, ["refused", "success"]);
    let reason = new[1].reason.as_deref().unwrap();
    assert_eq!(reason, "tenant solar: ticket 8 (namespaces that stay: 1)");
    let gone = refused(operator.delete_tenant(SOLAR, "").await);
    assert_eq!(gone.code(), Code::NotFound);
}

async fn tenants_of_capsule_are_not_written(world: &World, admin: &Kubectl, operator: &Api) {
    install(world, &["--apply", "--capsule-api"]).await.success().unwrap();
    until_served(admin, CAPSULE).await;
    let object = json!({"apiVersion": CAPSULE.1, "kind": "Tenant",
        "metadata": {"name": "lunar"}, "spec": spec(ALICE, 1)});
    with_object(admin, &["create"], object.to_string()).await.success().unwrap();
    // The broker is no longer told that it may not read the group.
    probe::until("the broker to read Tenants of Capsule", RECONCILE_TIMEOUT, || async {
        Ok(match operator.tenant_spec("lunar").await {
            Ok(read) if read.api_group == "capsule.clastix.io" => Probe::Ready(()),
            other => Probe::NotYet(format!("{other:?}")),
        })
    })
    .await
    .unwrap();
    let refusals = [
        refused(operator.create_tenant(&create("lunar", spec(ALICE, 2)), "").await),
        refused(operator.apply_tenant("lunar", &apply(spec(ALICE, 2)), "force=true").await),
        refused(operator.delete_tenant("lunar", "namespaces=keep").await),
    ];
    for refusal in refusals {
        assert_eq!((refusal.status, refusal.code()), (StatusCode::CONFLICT, Code::FieldConflict));
        assert!(refusal.body.contains("capsule.clastix.io"), "{refusal}");
    }
}
