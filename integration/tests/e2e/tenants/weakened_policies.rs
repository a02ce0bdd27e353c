//! `tenant-broker doctor` and policies for tenants that somebody weakened.

use integration::probe::{self, Probe};
use integration::world::World;

use super::cluster::RIGHTS_TIMEOUT;
use crate::doctor::{doctor, with};
use crate::install::install;

/// Ways in which an administrator may weaken a policy: the kind and name of the object, a patch of it
/// (none: its deletion), and the fault that the doctor finds.
const WEAKENED: [(&str, &str, Option<&str>, &str); 9] = [
    (
        "validatingadmissionpolicybinding",
        "tenant-guard-homes",
        None,
        "the binding tenant-guard-homes is missing",
    ),
    (
        "validatingadmissionpolicy",
        "tenant-guard-creation",
        None,
        "the policy tenant-guard-creation is missing",
    ),
    (
        "validatingadmissionpolicy",
        "tenant-guard-tenant-objects",
        Some(r#"[{"op": "replace", "path": "/spec/failurePolicy", "value": "Ignore"}]"#),
        "the policy tenant-guard-tenant-objects is not as this version makes it (spec.failurePolicy)",
    ),
    (
        "validatingadmissionpolicybinding",
        "tenant-guard-labels",
        Some(r#"[{"op": "replace", "path": "/spec/validationActions", "value": ["Audit"]}]"#),
        "the binding tenant-guard-labels is not as this version makes it (spec.validationActions)",
    ),
    // It had no match condition.
    (
        "validatingadmissionpolicy",
        "tenant-guard-tenants",
        Some(
            r#"[{"op": "add", "path": "/spec/matchConditions",
                "value": [{"name": "nobody", "expression": "false"}]}]"#,
        ),
        "the policy tenant-guard-tenants is not as this version makes it (spec.matchConditions)",
    ),
    // It has other match conditions.
    (
        "validatingadmissionpolicy",
        "tenant-broker-fence-tenant-objects",
        Some(
            r#"[{"op": "add", "path": "/spec/matchConditions/-",
                "value": {"name": "nobody", "expression": "false"}}]"#,
        ),
        "the policy tenant-broker-fence-tenant-objects is not as this version makes it \
         (spec.matchConditions)",
    ),
    (
        "validatingadmissionpolicy",
        "tenant-guard-namespaces",
        Some(r#"[{"op": "remove", "path": "/spec/validations/0"}]"#),
        "the policy tenant-guard-namespaces is not as this version makes it (spec.validations)",
    ),
    (
        "validatingadmissionpolicybinding",
        "tenant-pods-tenants",
        Some(
            r#"[{"op": "add", "path": "/spec/matchResources",
                "value": {"namespaceSelector": {"matchLabels": {"pods": "guarded"}}}}]"#,
        ),
        "the binding tenant-pods-tenants is not as this version makes it (spec.matchResources)",
    ),
    (
        "mutatingadmissionpolicy",
        "tenant-namespace-labels",
        Some(r#"[{"op": "replace", "path": "/spec/failurePolicy", "value": "Ignore"}]"#),
        "the policy tenant-namespace-labels is not as this version makes it (spec.failurePolicy)",
    ),
];

#[tokio::test]
async fn weakened_policies_are_found_and_the_command_that_the_doctor_names_repairs_them() {
    let world = World::builder()
        .own_control_plane()
        .installed("tenants.enabled", true)
        .installed("tenants.direct_namespaces", true)
        .installed("tenants.groups", "developers")
        .start()
        .await
        .unwrap();
    let (passed, checks) = doctor(&world, &[]).await;
    assert!(passed, "{:#?}", with("fail", &checks));
    let admin = world.admin_kubectl().unwrap();
    for (kind, name, patch, _) in WEAKENED {
        let args = match patch {
            Some(patch) => vec!["patch", kind, name, "--type=json", "-p", patch],
            None => vec!["delete", kind, name],
        };
        admin.run(args).await.unwrap().success().unwrap();
    }
    // Checks that try requests may fail besides, once the API server has reloaded the policies.
    let title = "the admission policies of this version are in force: ";
    let (_, checks) = doctor(&world, &[]).await;
    let failed = with("fail", &checks);
    let faults = failed.iter().filter_map(|line| line.strip_prefix(title));
    let mut faults: Vec<&str> = faults.collect();
    faults.sort_unstable();
    let mut expected =
        WEAKENED.map(|(.., fault)| format!("{fault}; run tenant-broker install --apply"));
    expected.sort_unstable();
    assert_eq!(faults, expected);

    let differs = install(&world, &["--diff"]).await;
    assert_eq!(differs.code(), 1, "{differs:?}");
    for (_, name, ..) in WEAKENED {
        assert!(differs.stdout.contains(&format!("{name} (")), "{name}: {}", differs.stdout);
    }
    install(&world, &["--apply"]).await.success().unwrap();
    probe::until("the doctor to pass", RIGHTS_TIMEOUT, || async {
        let (passed, checks) = doctor(&world, &[]).await;
        let failed = with("fail", &checks);
        Ok(if passed { Probe::Ready(()) } else { Probe::NotYet(format!("{failed:#?}")) })
    })
    .await
    .unwrap();
    assert_eq!(install(&world, &["--diff"]).await.success().unwrap().stdout, "");
}
