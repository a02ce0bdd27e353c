use super::*;
use crate::{
    install::{desired_model_roles, direct_namespaces, manifest as manifest_of, quoted},
    tenant::TenantSettings,
};

fn parameters(change: impl FnOnce(&mut TenantSettings)) -> Parameters {
    let mut tenants = TenantSettings::default();
    change(&mut tenants);
    Parameters {
        broker: "tenant-broker".parse().unwrap(),
        roles: vec!["admin".into()],
        pod_security: vec!["baseline".into()],
        audiences: vec!["https://kubernetes.default.svc".into()],
        bind_tokens: false,
        public_host: None,
        host_suffixes: vec![("basic".into(), None)],
        network_policy_tiers: vec![],
        tenants,
        capsule_api: false,
        model_services: crate::install::ModelServicesParameters::default(),
    }
}

fn direct(settings: &mut TenantSettings) {
    settings.enabled = true;
    settings.direct_namespaces = true;
    settings.groups = vec!["developers".into()];
}

fn names(policies: &[Policy]) -> Vec<&'static str> {
    policies.iter().map(Policy::name).collect()
}

fn documents(yaml: &str) -> Vec<serde_norway::Value> {
    serde_norway::Deserializer::from_str(yaml)
        .map(|document| serde::Deserialize::deserialize(document).unwrap())
        .collect()
}

fn message(policy: &Policy) -> &str {
    let [(_, Message::Built(message, _))] = policy.validations.as_slice() else {
        panic!("one validation with a built message")
    };
    message
}

#[test]
fn each_setting_adds_its_policies() {
    let personal = [
        "tenant-guard-secrets",
        "tenant-guard-objects",
        "tenant-guard-namespaces",
        "tenant-guard-llama-stacks",
        "tenant-suspended",
    ];
    let tenants = [
        "tenant-guard-homes",
        "tenant-guard-tenant-objects",
        "tenant-guard-labels",
        "tenant-guard-tenants",
    ];
    assert_eq!(names(&policies(&parameters(|_| {}))), personal);
    // Without tenants nobody owns one.
    let useless = parameters(|settings| settings.direct_namespaces = true);
    assert_eq!(names(&policies(&useless)), personal);
    let enabled = parameters(|settings| settings.enabled = true);
    assert_eq!(names(&policies(&enabled)), [&personal[..], &tenants].concat());
    let all = [&personal[..], &tenants, &["tenant-guard-creation"]].concat();
    assert_eq!(names(&policies(&parameters(direct))), all);
}

#[test]
fn the_policy_for_the_group_of_capsule_follows_the_flag_and_is_not_verified() {
    let enabled = parameters(|settings| settings.enabled = true);
    assert!(names(&unverified_policies(&enabled)).is_empty());
    let with = Parameters { capsule_api: true, ..enabled };
    assert_eq!(names(&unverified_policies(&with)), ["tenant-guard-capsule-tenants"]);
    assert!(!names(&with.policies()).contains(&"tenant-guard-capsule-tenants"));
    assert!(manifest_of(&with).contains("name: tenant-guard-capsule-tenants"));
    // Where there are no tenants the flag has no meaning.
    let none = Parameters { capsule_api: true, ..parameters(|_| {}) };
    assert!(names(&unverified_policies(&none)).is_empty());
}

#[test]
fn the_refused_deletion_says_how_many_namespaces_there_are_and_what_to_do() {
    let policy = deletion::policy(ApiGroup::TenantBroker);
    assert_eq!(
        message(&policy),
        "\"tenant \" + oldObject.metadata.name + \" still has \" + \
         string(oldObject.?status.?size.orValue(0)) + \" namespaces: \" + \"delete them first, or \
         let them stay with the annotation tenant-broker.io/on-delete=keep-namespaces\""
    );
    let capsule = deletion::policy(ApiGroup::Capsule);
    assert_eq!(policy.validations[0].0, capsule.validations[0].0);
    assert_eq!(message(&policy), message(&capsule));
}

/// Three checks in one expression exceed its cost limit, so the request would be refused.
#[test]
fn an_expression_asks_the_authorizer_once_at_most() {
    for policy in policies(&parameters(direct)) {
        for (name, expression) in &policy.variables {
            assert!(expression.matches(".check(").count() <= 1, "{} {name}", policy.name());
        }
        let expressions = policy.validations.iter().map(|(expression, _)| expression);
        let conditions = policy.conditions.iter().map(|(_, expression)| expression);
        for expression in expressions.chain(conditions) {
            assert!(!expression.contains(".check("), "{}: {expression}", policy.name());
        }
    }
}

#[test]
fn the_label_of_the_tenant_may_be_given_only_where_its_owner_is_checked() {
    let given = "|| k == \"tenant-broker.io/tenant\"";
    let of_namespaces = |parameters: &Parameters| {
        let policy = namespaces::policy(parameters);
        policy.validations.iter().map(|(expression, _)| expression.clone()).collect::<String>()
    };
    let enabled = parameters(|settings| settings.enabled = true);
    assert!(!of_namespaces(&parameters(|_| {})).contains(given));
    assert!(!of_namespaces(&enabled).contains(given));
    assert!(of_namespaces(&parameters(direct)).contains(given));
}

#[test]
fn with_tenants_nobody_creates_namespaces_with_names_of_the_broker() {
    let refuses = |parameters: &Parameters| {
        let policy = namespaces::policy(parameters);
        let name = "!object.metadata.name.startsWith(\"tenant-\")";
        policy.validations.iter().any(|(expression, _)| expression.contains(name))
    };
    assert!(!refuses(&parameters(|_| {})));
    assert!(refuses(&parameters(|settings| settings.enabled = true)));
    assert!(refuses(&parameters(direct)));
}

#[test]
fn lists_that_are_too_long_are_refused_and_not_gone_through() {
    let expressions = |policy: Policy| -> Vec<String> {
        policy.validations.into_iter().map(|(expression, _)| expression).collect()
    };
    let creation = expressions(creation::policy(&parameters(direct)));
    assert_eq!(creation[0], "!variables.large || variables.administrator");
    let of_metadata = |it: &&String| it.contains("labels.") || it.contains("annotations.");
    let through: Vec<_> =
        creation.iter().filter(of_metadata).filter(|it| it.contains(".all(k,")).collect();
    assert_eq!(through.len(), 2);
    assert!(through.iter().all(|it| it.contains("variables.large || ")), "{through:?}");

    let objects = expressions(tenant_objects::policy(&parameters(direct)));
    let few = "object.?subjects.orValue([]).size() <= 256";
    assert!(
        objects.contains(&format!("{IS_NO_BINDING_OR_DELETE} || {few} || variables.administrator"))
    );
    let through: Vec<_> = objects.iter().filter(|it| it.contains(".all(s,")).collect();
    assert_eq!(through.len(), 3);
    for expression in through {
        let is_guarded = expression.contains(&format!("!({few}) || object.?subjects"));
        assert!(is_guarded && expression.starts_with(IS_NO_BINDING_OR_DELETE), "{expression}");
    }
}

#[test]
fn an_update_that_makes_a_namespace_large_is_refused_and_not_gone_through() {
    let mut protected = parameters(direct);
    protected.tenants.protected_labels = Some("^control-plane$".to_owned().into());
    for (parameters, count) in [(parameters(|_| {}), 1), (protected, 4)] {
        let policy = namespaces::policy(&parameters);
        let mut expressions = policy.validations.iter().map(|(expression, _)| expression);
        assert_eq!(expressions.next().unwrap(), "!variables.grows || variables.administrator");
        let through: Vec<_> = expressions.filter(|it| it.contains(".all(k,")).collect();
        assert_eq!(through.len(), count);
        assert!(through.iter().all(|it| it.contains("variables.grows || ")), "{through:?}");
    }
}

#[test]
fn labels_are_protected_only_where_the_operator_says_so() {
    let names = |parameters: &Parameters, text: &str| -> Vec<&str> {
        let refuses = |policy: &Policy| policy.validations.iter().any(|(it, _)| it.contains(text));
        let policies = parameters.policies();
        policies.iter().filter(|policy| refuses(policy)).map(Policy::name).collect()
    };
    let pattern = r#"a") || true || ("\"#;
    let text = format!("k.matches({})", quoted(pattern));
    let mut parameters = parameters(direct);
    assert!(names(&parameters, "k.matches(").is_empty());
    parameters.tenants.protected_labels = Some(pattern.to_owned().into());
    assert_eq!(
        names(&parameters, &text),
        [
            "tenant-guard-namespaces",
            "tenant-guard-creation",
            "tenant-broker-fence-tenant-namespaces"
        ]
    );
}

/// A member of a tenant whose namespaces have `bindings: Any` binds subjects from outside.
#[test]
fn nobody_but_an_administrator_binds_the_broker() {
    let refuses = |identity: &str, subject: &str| {
        let enabled = parameters(|settings| settings.enabled = true);
        let policy =
            tenant_objects::policy(&Parameters { broker: identity.parse().unwrap(), ..enabled });
        policy.validations.iter().any(|(it, _)| it.contains(subject))
    };
    let user = r#".all(s, !(s.kind == "User" && s.name == "tenant-broker")) || variables.admin"#;
    assert!(refuses("tenant-broker", user));
    let account = r#".all(s, !(s.kind == "ServiceAccount" && s.name == "broker" && s.?namespace.orValue("") == "ns")) || variables.admin"#;
    assert!(refuses("system:serviceaccount:ns:broker", account));
}

#[test]
fn a_new_namespace_is_restricted_where_all_tiers_are() {
    let with = |levels: &[&str]| Parameters {
        pod_security: levels.iter().map(|level| (*level).to_owned()).collect(),
        ..parameters(direct)
    };
    for (levels, filled, allowed) in [
        (&["baseline"][..], "baseline", "enforce=baseline or restricted"),
        (&["baseline", "restricted"], "baseline", "enforce=baseline or restricted"),
        (&["restricted"], "restricted", "enforce=restricted"),
    ] {
        let parameters = with(levels);
        assert_eq!(weakest_level(&parameters), filled, "{levels:?}");
        let policy = creation::policy(&parameters);
        let found = policy
            .validations
            .iter()
            .any(|(_, message)| matches!(message, Message::Fixed(text) if text.ends_with(allowed)));
        assert!(found, "{levels:?}");
        let objects = direct_namespaces::mutation(&parameters);
        let applied = objects[0].1["spec"]["mutations"][0]["applyConfiguration"].to_string();
        assert!(applied.contains(&format!("orValue(\\\"{filled}\\\")")), "{applied}");
    }
}

#[test]
fn the_status_of_quotas_is_guarded_because_the_api_server_admits_by_it() {
    let enabled = parameters(|settings| settings.enabled = true);
    for policy in [objects::policy(&enabled), tenant_objects::policy(&enabled)] {
        let mut resources = policy.rules.iter().flat_map(|rule| rule.resources.iter().flatten());
        assert!(resources.any(|resource| resource == "resourcequotas/status"), "{}", policy.name());
    }
}

/// The quotas of tiers count the kinds that the built-in role `admin` may create, and none of these.
#[test]
fn every_kind_that_the_roles_of_model_services_create_is_limited_by_the_policy() {
    let policy = llama_stacks::policy(&parameters(|_| {}));
    let limited = |group: &String, resource: &String| {
        policy.rules.iter().any(|rule| {
            let has = |items: &Option<Vec<String>>, item: &str| {
                items.as_ref().is_some_and(|items| items.iter().any(|it| it == item))
            };
            has(&rule.api_groups, group)
                && has(&rule.resources, resource)
                && has(&rule.operations, "CREATE")
        })
    };
    let mut creatable = 0;
    for rule in desired_model_roles().into_iter().flat_map(|role| role.rules.unwrap_or_default()) {
        if !rule.verbs.iter().any(|verb| ["create", "patch", "update", "*"].contains(&&**verb)) {
            continue;
        }
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                creatable += 1;
                assert!(limited(group, resource), "{resource}.{group}");
            }
        }
    }
    assert_eq!(creatable, 1);
}

/// `tenant-broker-fence-tenant-objects` refuses new subjects in suspended namespaces of tenants.
#[test]
fn the_policy_for_suspended_namespaces_does_not_depend_on_tenants() {
    let conditions = |parameters: &Parameters| suspended::policy(parameters).conditions;
    let enabled = parameters(|settings| settings.enabled = true);
    assert_eq!(conditions(&enabled), conditions(&parameters(|_| {})));
}

#[test]
fn protected_names_are_quoted() {
    let hostile = parameters(|settings| {
        direct(settings);
        settings.protected_names = r#"x") || true || ("\"#.to_owned().into();
    });
    let policy = creation::policy(&hostile);
    let quoted = quoted(hostile.tenants.protected_names.as_str());
    let found = policy.validations.iter().any(|(it, _)| it.contains(&format!("({quoted})")));
    assert!(found, "{quoted}");
}

#[test]
fn people_get_the_permission_to_create_namespaces_after_the_policies_that_limit_it() {
    let manifest = manifest_of(&parameters(direct));
    let documents = documents(&manifest);
    let position = |kind: &str, name: &str| {
        let is_it = |document: &serde_norway::Value| {
            document["kind"] == kind && document["metadata"]["name"] == name
        };
        documents.iter().position(is_it).unwrap_or_else(|| panic!("no {kind} {name}"))
    };
    let creation = position("ValidatingAdmissionPolicyBinding", "tenant-guard-creation");
    let labels = position("MutatingAdmissionPolicyBinding", "tenant-namespace-labels");
    let given = position("ClusterRoleBinding", "tenant-namespace-provisioner");
    assert!(creation < labels && labels < given);
    assert_eq!(documents[given]["subjects"][0]["name"], "developers");
    let without = manifest_of(&parameters(|settings| settings.enabled = true));
    assert!(!without.contains("tenant-namespace-provisioner"));
    assert!(!without.contains("MutatingAdmissionPolicy"));
}
