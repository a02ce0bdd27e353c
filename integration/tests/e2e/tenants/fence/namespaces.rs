//! Requests for namespaces of tenants and their homes.

use serde_json::{Value, json};

use super::{Attempt, NO_RIGHT, create, delete, home_labels, labels, namespace, patch};

const TENANT_NAMESPACES: &str = "tenant-broker-fence-tenant-namespaces";
const OTHER_NAMESPACES: &str = "tenant-broker-fence-namespaces";
const NODE_SELECTOR: &str = "scheduler.alpha.kubernetes.io/node-selector";
/// A name that would be a personal workspace's with the prefix of homes.
const UUID: &str = "a1b2c3d4-0000-4000-8000-000000000000";

/// A namespace with annotations.
fn annotated(mut namespace: Value, annotations: &Value) -> Value {
    namespace["metadata"]["annotations"] = annotations.clone();
    namespace
}

pub(super) fn creations() -> Vec<Attempt> {
    let none = json!({});
    let refused = Some(TENANT_NAMESPACES);
    let of_solar = |name: &str, change: &Value| namespace(name, &labels("solar", change));
    let home_of = |tenant: &str, change: &Value| {
        namespace(&format!("tenant-{tenant}"), &home_labels(tenant, change))
    };
    let more = json!({"team": "a", "tenant-broker.io/bindings": "any"});
    let held = json!({"finalizers": ["example.com/held"]});
    let mut with_finalizer = of_solar("solar-x", &none);
    with_finalizer["metadata"]["finalizers"] = held["finalizers"].clone();
    vec![
        create(home_of("stellar", &none), None),
        create(of_solar("solar-x", &none), None),
        create(of_solar("solar-x", &more), None),
        // The Tenant names no tier.
        create(of_solar("solar-x", &json!({"tenant-broker.io/tier": null})), None),
        create(of_solar("solar-x", &json!({"tenant-broker.io/suspended": "true"})), None),
        create(
            annotated(of_solar("solar-x", &none), &json!({NODE_SELECTOR: "pool=a", "x.io/y": "z"})),
            None,
        ),
        // Names.
        create(of_solar("lunar-x", &none), refused),
        create(of_solar("solar", &none), refused),
        create(of_solar("solarium", &none), refused),
        create(of_solar("tenant-stellar", &none), refused),
        create(namespace("tenant-stellar", &home_labels("solar", &none)), refused),
        create(namespace("kube-x", &labels("kube", &none)), refused),
        create(namespace("istio-system", &labels("istio", &none)), refused),
        create(home_of("system", &none), refused),
        create(home_of(UUID, &none), refused),
        create(namespace("solar-x", &labels("", &none)), refused),
        // Labels.
        create(of_solar("solar-x", &json!({"tenant-broker.io/home": "true"})), refused),
        create(of_solar("solar-x", &json!({"tenant-broker.io/workspace": "w"})), refused),
        create(of_solar("solar-x", &json!({"tenant-broker.io/bindings": "all"})), refused),
        create(of_solar("solar-x", &json!({"tenant-broker.io/other": "x"})), refused),
        create(of_solar("solar-x", &json!({"app.kubernetes.io/managed-by": null})), refused),
        create(of_solar("solar-x", &json!({"openshift.io/run-level": "0"})), refused),
        create(of_solar("solar-x", &json!({"my-control-plane": "x"})), None),
        create(
            of_solar("solar-x", &json!({"pod-security.kubernetes.io/enforce": "privileged"})),
            refused,
        ),
        create(
            of_solar("solar-x", &json!({"pod-security.kubernetes.io/enforce-version": "v1.20"})),
            refused,
        ),
        create(
            home_of("stellar", &json!({"pod-security.kubernetes.io/enforce": "baseline"})),
            refused,
        ),
        create(home_of("stellar", &json!({"tenant-broker.io/home": null})), refused),
        create(home_of("stellar", &json!({"tenant-broker.io/bindings": "any"})), refused),
        // Other metadata.
        create(annotated(of_solar("solar-x", &none), &json!({"x.kubernetes.io/y": "z"})), refused),
        create(annotated(home_of("stellar", &none), &json!({NODE_SELECTOR: "pool=a"})), refused),
        create(with_finalizer, refused),
    ]
}

pub(super) fn changes() -> Vec<Attempt> {
    let refused = Some(TENANT_NAMESPACES);
    let label = |name: &str, change: Value, refusal| {
        patch(&["namespace", name], &json!({"metadata": {"labels": change}}), refusal)
    };
    let annotate = |name: &str, change: Value, refusal| {
        patch(&["namespace", name], &json!({"metadata": {"annotations": change}}), refusal)
    };
    vec![
        label("solar-prod", json!({"tenant-broker.io/suspended": "true"}), None),
        label("solar-many", json!({"tenant-broker.io/suspended": "true"}), None),
        label("solar-many", json!({"tenant-broker.io/home": "true"}), refused),
        label("solar-prod", json!({"control-plane": "true"}), refused),
        label("solar-held", json!({"tenant-broker.io/suspended": null}), None),
        label("tenant-solar", json!({"tenant-broker.io/suspended": "true"}), None),
        label("cert-manager", json!({"tenant-broker.io/suspended": "true"}), None),
        label("cert-manager", json!({"tenant-broker.io/tenant": "solar"}), refused),
        label("cert-manager", json!({"tenant-broker.io/bindings": "any"}), refused),
        label("cert-manager", json!({"tenant-broker.io/tier": "large"}), refused),
        label("solar-prod", json!({"team": "b", "tenant-broker.io/tier": "premium"}), None),
        label("solar-prod", json!({"tenant-broker.io/bindings": "any"}), None),
        label("solar-prod", json!({"pod-security.kubernetes.io/enforce": "restricted"}), None),
        annotate("solar-prod", json!({NODE_SELECTOR: "pool=a"}), None),
        label("solar-prod", json!({"tenant-broker.io/tenant": "lunar"}), refused),
        label("solar-prod", json!({"tenant-broker.io/tenant": null}), refused),
        label("solar-prod", json!({"tenant-broker.io/home": "true"}), refused),
        label("solar-prod", json!({"tenant-broker.io/workspace": "w"}), refused),
        label("solar-prod", json!({"pod-security.kubernetes.io/enforce": "privileged"}), refused),
        label("solar-prod", json!({"pod-security.kubernetes.io/enforce": null}), refused),
        label(
            "solar-prod",
            json!({"pod-security.kubernetes.io/enforce-version": "v1.20"}),
            refused,
        ),
        label("solar-prod", json!({"app.kubernetes.io/managed-by": "Helm"}), refused),
        annotate("solar-prod", json!({"x.kubernetes.io/y": "z"}), refused),
        label("tenant-solar", json!({"tenant-broker.io/home": null}), refused),
        label("tenant-solar", json!({"team": "b"}), refused),
        label("tenant-solar", json!({"pod-security.kubernetes.io/enforce": "baseline"}), refused),
        annotate("tenant-solar", json!({NODE_SELECTOR: "pool=a"}), refused),
        // Adoption.
        label("default", json!({"tenant-broker.io/tenant": "solar"}), Some(OTHER_NAMESPACES)),
        label("kube-system", json!({"tenant-broker.io/suspended": "true"}), Some(OTHER_NAMESPACES)),
        delete(&["namespace", "solar-prod"], Some(NO_RIGHT)),
        delete(&["namespace", "tenant-solar"], Some(NO_RIGHT)),
    ]
}
