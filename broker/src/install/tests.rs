use super::*;

pub(super) fn parameters(broker: &str) -> Parameters {
    Parameters {
        broker: broker.parse().unwrap(),
        roles: vec!["admin".into()],
        pod_security: vec!["baseline".into()],
        audiences: vec!["https://kubernetes.default.svc".into()],
        bind_tokens: false,
        public_host: None,
        host_suffixes: vec![("basic".into(), None)],
        network_policy_tiers: vec![],
        tenants: TenantSettings::default(),
        capsule_api: false,
        model_services: crate::install::ModelServicesParameters::default(),
    }
}

fn with_hosts() -> Parameters {
    Parameters {
        public_host: Some("tenants.example.com".into()),
        host_suffixes: vec![
            ("basic".into(), ".{namespace}.apps.example.com".parse().ok()),
            ("gold".into(), None),
        ],
        ..parameters("tenant-broker")
    }
}

fn with_tenants(parameters: Parameters) -> Parameters {
    let tenants = TenantSettings { enabled: true, ..TenantSettings::default() };
    Parameters { tenants, ..parameters }
}

fn binding(broker: &str) -> Parameters {
    Parameters { bind_tokens: true, ..parameters(broker) }
}

fn documents(yaml: &str) -> Vec<serde_norway::Value> {
    serde_norway::Deserializer::from_str(yaml)
        .map(|document| serde::Deserialize::deserialize(document).unwrap())
        .collect()
}

#[test]
fn no_rule_reads_forbidden_resources_or_has_wildcards() {
    let parameters = parameters("tenant-broker");
    for rule in role::rules(&parameters, vec!["x".into()]) {
        for resource in &rule.resources {
            assert!(!["secrets", "pods", "deployments", "*"].contains(resource));
        }
        assert!(!rule.verbs.contains(&"*") && !rule.verbs.contains(&"impersonate"));
        assert_ne!(rule.group, "*");
    }
}

#[test]
fn the_broker_reads_the_definitions_of_tenants_and_no_other() {
    let names = |enabled: bool| -> Vec<String> {
        let mut parameters = parameters("tenant-broker");
        parameters.tenants.enabled = enabled;
        let permissions = parameters.permissions();
        let on_definitions =
            permissions.into_iter().filter(|it| it.resource == "customresourcedefinitions");
        on_definitions.map(|it| format!("{} {} {}", it.verb, it.group, it.name)).collect()
    };
    assert!(names(false).is_empty());
    assert_eq!(
        names(true),
        [
            "get apiextensions.k8s.io tenants.tenant-broker.io",
            "get apiextensions.k8s.io tenants.capsule.clastix.io",
        ]
    );
}

#[test]
fn with_bound_tokens_secrets_are_created_and_deleted_but_never_read() {
    let parameters = binding("tenant-broker");
    let rules = role::rules(&parameters, vec!["x".into()]);
    let on_secrets: Vec<_> =
        rules.iter().filter(|rule| rule.resources.contains(&"secrets")).collect();
    assert_eq!(on_secrets.len(), 1);
    assert_eq!(on_secrets[0].verbs, ["create", "delete"]);
    // The policy is applied before the permission.
    let yaml = manifest(&parameters);
    let policy = yaml.find("tenant-broker-fence-secrets").unwrap();
    assert!(policy < yaml.find("kind: ClusterRole\n").unwrap());
    assert!(!manifest(&self::parameters("tenant-broker")).contains("fence-secrets"));
}

#[test]
fn a_hostile_user_name_is_quoted() {
    let yaml = manifest(&parameters("x\" || true || \"\\"));
    let documents = documents(&yaml);
    let subjects =
        documents.iter().find_map(|document| document.get("subjects")?.as_sequence()).unwrap();
    assert_eq!(subjects.len(), 1);
    let policy = documents
        .iter()
        .find(|document| document["metadata"]["name"] == "tenant-broker-fence-outside")
        .unwrap();
    let condition = policy["spec"]["matchConditions"][0]["expression"].as_str().unwrap();
    assert_eq!(condition, r#"request.userInfo.username == "x\" || true || \"\\""#);
}

#[test]
fn every_policy_and_its_binding_precede_the_cluster_role() {
    let parameters = parameters("tenant-broker");
    let kinds: Vec<String> = documents(&manifest(&parameters))
        .iter()
        .map(|document| document["kind"].as_str().unwrap().to_owned())
        .collect();
    let (policies, rights) = kinds.split_at(kinds.len() - 2);
    assert_eq!(rights, ["ClusterRole", "ClusterRoleBinding"]);
    assert_eq!(policies.len(), 2 * parameters.policies().len());
    for pair in policies.chunks(2) {
        assert_eq!(pair, ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"]);
    }
}

#[test]
fn a_policy_for_all_resources_excludes_cluster_scoped_ones() {
    // A namespace selector does not skip cluster-scoped objects: such a policy would refuse those
    // of everybody.
    for policy in parameters("tenant-broker").policies() {
        for rule in &policy.rules {
            let cluster = rule.scope.as_deref() == Some("Cluster");
            assert!(!cluster || policy.namespaces == policy::Namespaces::All, "{}", policy.name);
            assert!(
                !policy.matches_all_resources() || rule.scope.as_deref() == Some("Namespaced"),
                "{}",
                policy.name
            );
        }
    }
}

/// Otherwise the condition would pass requests that a validation should refuse.
#[test]
fn the_match_condition_for_tokens_contains_every_validation() {
    let policy = tokens::policy(&parameters("tenant-broker"));
    let [(_, condition)] = policy.conditions.as_slice() else { panic!("one condition") };
    let is_broker = r#"request.userInfo.username == "tenant-broker""#;
    let (for_others, for_broker) = policy.validations.split_first().unwrap();
    assert!(for_others.0.starts_with(is_broker));
    assert!(condition.starts_with(&format!("!({is_broker} ? ")));
    assert!(!for_broker.is_empty());
    for (expression, _) in for_broker {
        let demand = expression.strip_prefix(&format!("!({is_broker}) || ")).unwrap();
        assert!(condition.contains(demand), "{demand} is not in {condition}");
    }
}

#[test]
fn the_policy_for_network_policies_precedes_the_permission() {
    let with =
        Parameters { network_policy_tiers: vec!["basic".into()], ..parameters("tenant-broker") };
    let yaml = manifest(&with);
    let policy = yaml.find("tenant-broker-fence-network").unwrap();
    assert!(policy < yaml.find("kind: ClusterRole\n").unwrap());
    let without = manifest(&parameters("tenant-broker"));
    let role = without.split_once("kind: ClusterRole\n").unwrap().1;
    assert!(!role.contains("networkpolicies") && !without.contains("fence-network"));
}

/// Otherwise the condition would pass requests that a validation should refuse.
#[test]
fn the_match_condition_for_pods_contains_every_validation() {
    let policy = pods::policy(&parameters("tenant-broker"));
    let [(_, condition)] = policy.conditions.as_slice() else { panic!("one condition") };
    let (binding, pods) = policy.validations.split_first().unwrap();
    assert!(condition.starts_with(&binding.0[1..]), "{condition}");
    assert_eq!(pods.len(), 3);
    for (expression, _) in pods {
        let wrong = expression.split_once("!(").unwrap().1;
        let wrong =
            wrong.trim_end_matches(" || variables.administrator").strip_suffix(')').unwrap();
        assert!(condition.contains(wrong), "{wrong} is not in {condition}");
    }
}

/// Every combination of the settings that decide over the kinds that the broker writes.
fn all_kinds() -> [Parameters; 4] {
    let bound = with_tenants(binding("tenant-broker"));
    let tiers = vec!["basic".to_owned()];
    [
        parameters("tenant-broker"),
        with_tenants(parameters("tenant-broker")),
        Parameters { network_policy_tiers: tiers.clone(), ..bound.clone() },
        bound,
    ]
}

/// Somebody may bind the broker in a namespace. Kinds that it never writes are not in the policies for
/// the broker, so those for everybody else have to hold.
#[test]
fn the_policies_for_everybody_else_exempt_the_broker_for_the_kinds_that_it_writes_only() {
    const BROKER: &str = r#"request.userInfo.username == "tenant-broker""#;
    let of_kinds = format!("{BROKER} && {}", r#"(request.resource.group + "/" + "#);
    for parameters in all_kinds() {
        let is_for_others = |policy: &Policy| !policy.name().starts_with("tenant-broker-fence-");
        for policy in parameters.policies().into_iter().filter(is_for_others) {
            for (_, condition) in &policy.conditions {
                let exempted = condition.matches(&of_kinds).count();
                let name = policy.name();
                // These say themselves what the broker may write, or treat it like a tenant.
                let others = match name {
                    "tenant-tokens" | "tenant-suspended" => 1,
                    "tenant-pods" | "tenant-network" if !parameters.tenants.enabled => 1,
                    _ => 0,
                };
                assert_eq!(condition.matches(BROKER).count(), exempted + others, "{name}");
                if name == "tenant-suspended" {
                    assert!(condition.contains(r#"|| !((request.resource.group + "/" + "#));
                }
            }
        }
    }
}

#[test]
fn a_policy_for_the_broker_decides_over_each_kind_that_it_writes() {
    for (parameters, count) in all_kinds().into_iter().zip([7, 7, 8, 7]) {
        let policies = parameters.policies();
        let kinds = cel::kinds_of_broker(&parameters);
        assert_eq!(kinds.len(), count);
        for kind in kinds {
            if kind == "/secrets/" && !parameters.bind_tokens {
                // It has no right on them then, and the policy for everybody holds for it as well.
                let guard = policies.iter().find(|it| it.name() == "tenant-guard-secrets").unwrap();
                let broker = parameters.broker.to_string();
                assert!(guard.conditions.iter().all(|(_, text)| !text.contains(&broker)));
                continue;
            }
            let [group, resource, subresource] =
                kind.split('/').collect::<Vec<_>>().try_into().unwrap();
            let resource = match subresource {
                "" => resource.to_owned(),
                _ => format!("{resource}/{subresource}"),
            };
            let decides = |policy: &&Policy| {
                let of_broker = policy.name().starts_with("tenant-broker-fence-")
                    && policy.name() != "tenant-broker-fence-outside";
                (of_broker || policy.name() == "tenant-tokens")
                    && policy.rules.iter().any(|rule| {
                        let contains = |list: &Option<Vec<String>>, text: &str| {
                            list.iter().flatten().any(|it| it == text)
                        };
                        contains(&rule.api_groups, group) && contains(&rule.resources, &resource)
                    })
            };
            assert!(policies.iter().any(|policy| decides(&policy)), "{kind}");
        }
    }
}

/// Members of tenants are users, groups and ServiceAccounts of any name.
#[test]
fn in_namespaces_of_tenants_the_label_decides_and_not_the_account() {
    let parameters = with_tenants(parameters("tenant-broker"));
    let of_tenant = "\"tenant-broker.io/tenant\" in namespaceObject";
    for policy in [pods::policy(&parameters), network::policy(&parameters)] {
        let (name, first) = (policy.name(), &policy.validations[0].0);
        assert!(first.contains(of_tenant), "{name}: {first}");
        for (_, condition) in &policy.conditions {
            // The API server fails to evaluate a match condition with labels of the namespace.
            assert!(!condition.contains("namespaceObject"), "{name}: {condition}");
            assert!(!condition.contains("system:serviceaccount:tenant-"), "{name}: {condition}");
        }
        for (variable, expression) in &policy.variables {
            assert!(expression.matches(".check(").count() <= 1, "{name} {variable}");
        }
    }
}

#[test]
fn a_tenant_without_a_tier_has_the_strictest_rule_for_hosts() {
    let suffix = |parameters: Parameters| {
        let policy = network::policy(&parameters);
        let mut variables = policy.variables.into_iter();
        variables.find(|(name, _)| *name == "suffix").unwrap().1
    };
    let without = |strictest: &str| {
        format!(
            ".orValue(\"\") == \"\" ? (\"tenant-broker.io/tenant\" in \
             namespaceObject.metadata.?labels.orValue({{}}) ? {strictest} : \"\") : {{"
        )
    };
    let one = suffix(with_tenants(with_hosts()));
    let of_basic = without("\".\" + request.namespace + \".apps.example.com\"");
    assert!(one.contains(&of_basic), "{one}");
    let mut hosts = with_hosts();
    hosts.host_suffixes.push(("silver".into(), ".{namespace}.example.net".parse().ok()));
    let several = suffix(with_tenants(hosts));
    assert!(several.contains(&without("\"/\"")), "{several}");
    let personal = suffix(with_hosts());
    assert!(personal.contains(".orValue(\"\") == \"\" ? \"\" : {"), "{personal}");
}

#[test]
fn the_rules_for_host_names() {
    let spec = network::policy(&with_hosts()).policy().spec.unwrap();
    insta::assert_json_snapshot!((spec.variables, spec.validations));
}

#[test]
fn the_manifest() {
    insta::assert_snapshot!(manifest(&parameters("tenant-broker")));
}

#[test]
fn the_broker_policy_for_secrets() {
    let policy = broker_policies::secrets(&binding("tenant-broker"));
    insta::assert_json_snapshot!(policy.policy().spec.unwrap().validations);
}

#[test]
fn the_definition_of_tenants() {
    insta::assert_snapshot!(tenant_definitions(&[ApiGroup::TenantBroker]));
}

#[test]
fn definitions_have_the_label_that_install_finds_its_objects_by() {
    let yaml = tenant_definitions(&[ApiGroup::TenantBroker, ApiGroup::Capsule]);
    let definitions = documents(&yaml);
    assert_eq!(definitions.len(), 2);
    for definition in definitions {
        assert_eq!(definition["kind"], "CustomResourceDefinition");
        let label = &definition["metadata"]["labels"][INSTALLED_BY_LABEL];
        assert_eq!(label, INSTALLED_BY_VALUE);
    }
    assert_eq!(tenant_definitions(&[]), "");
}
