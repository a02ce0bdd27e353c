//! Objects of the kind `Tenant` as validated types.
//!
//! The API server checks an object when it is written. One that was written under another
//! definition may still break the rules.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::Deserialize;
use serde_json::Value;

use super::{
    ClusterRoleName, Fault, Subject, TenantName,
    limits::{MAX_BINDINGS, MAX_CLUSTER_ROLES, MAX_OWNERS, MAX_QUOTAS, MAX_SUBJECTS},
    quantity::is_amount,
    schema::DEFAULT_CLUSTER_ROLES,
};

/// A Tenant that keeps the rules of the definition on names, owners, bindings and quotas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// Its name.
    pub name: TenantName,
    /// The owners, each once.
    pub owners: Vec<Owner>,
    /// Roles for others.
    pub additional_role_bindings: Vec<AdditionalRoleBinding>,
    /// What the amounts of `quotas` are for.
    pub quota_scope: QuotaScope,
    /// Amounts by resource, one map for each ResourceQuota.
    pub quotas: Vec<BTreeMap<String, String>>,
}

/// An owner with their ClusterRoles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub subject: Subject,
    pub cluster_roles: Vec<ClusterRoleName>,
}

/// A ClusterRole for subjects that do not own the tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdditionalRoleBinding {
    pub cluster_role: ClusterRoleName,
    pub subjects: Vec<Subject>,
}

/// What a quota is for (`spec.resourceQuotas.scope`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum QuotaScope {
    /// All namespaces together.
    #[default]
    Tenant,
    /// Each namespace.
    Namespace,
}

/// `spec` as JSON has it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawSpec {
    owners: Vec<RawOwner>,
    #[serde(default)]
    additional_role_bindings: Vec<RawBinding>,
    #[serde(default)]
    resource_quotas: RawQuotas,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawOwner {
    kind: String,
    name: String,
    cluster_roles: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawBinding {
    cluster_role_name: String,
    subjects: Vec<RawSubject>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawSubject {
    kind: String,
    name: String,
    namespace: Option<String>,
    api_group: Option<String>,
}

#[derive(Default, Deserialize)]
struct RawQuotas {
    #[serde(default)]
    scope: QuotaScope,
    #[serde(default)]
    items: Vec<RawQuota>,
}

#[derive(Deserialize)]
struct RawQuota {
    #[serde(default)]
    hard: BTreeMap<String, Value>,
}

impl Tenant {
    /// Validates the name and the `spec` of an object.
    ///
    /// # Errors
    /// All rules that it breaks. A field of a wrong type is reported alone, as a fault of `spec`.
    pub fn parse(name: &str, spec: &Value) -> Result<Self, Vec<Fault>> {
        let mut faults = Faults::default();
        let name = faults.keep("metadata.name", name.parse::<TenantName>());
        let raw = faults.keep("spec", RawSpec::deserialize(spec));
        let (Some(name), Some(raw)) = (name, raw) else { return Err(faults.0) };
        let owners = owners(raw.owners, &mut faults);
        let additional_role_bindings = bindings(raw.additional_role_bindings, &mut faults);
        let quota_scope = raw.resource_quotas.scope;
        let quotas = quotas(raw.resource_quotas.items, &mut faults);
        if !faults.0.is_empty() {
            return Err(faults.0);
        }
        Ok(Self { name, owners, additional_role_bindings, quota_scope, quotas })
    }
}

/// The faults that were found so far.
#[derive(Default)]
struct Faults(Vec<Fault>);

impl Faults {
    /// The value, or `None` after its error is recorded.
    fn keep<T, E: fmt::Display>(&mut self, field: &str, result: Result<T, E>) -> Option<T> {
        result.map_err(|error| self.0.push(Fault::new(field, error))).ok()
    }

    /// Records a list that is too long.
    fn limit<T>(&mut self, field: &str, items: &[T], max: usize) {
        if items.len() > max {
            self.0.push(Fault::new(field, format!("at most {max} items, not {}", items.len())));
        }
    }

    /// Records a list that is empty.
    fn not_empty<T>(&mut self, field: &str, items: &[T]) {
        if items.is_empty() {
            self.0.push(Fault::new(field, "at least one item"));
        }
    }
}

fn owners(raw: Vec<RawOwner>, faults: &mut Faults) -> Vec<Owner> {
    faults.not_empty("spec.owners", &raw);
    faults.limit("spec.owners", &raw, MAX_OWNERS);
    let mut owners = Vec::new();
    let mut known = BTreeSet::new();
    for (index, raw) in raw.into_iter().enumerate() {
        let at = format!("spec.owners[{index}]");
        let cluster_roles = cluster_roles(&at, raw.cluster_roles, faults);
        let subject = Subject::owner(&raw.kind, &raw.name);
        match subject {
            Err(error) => faults.0.push(Fault::new(format!("{at}.{}", error.field()), error)),
            Ok(subject) if !known.insert(subject.clone()) => {
                faults.0.push(Fault::new(at, "an owner is named once only"));
            }
            Ok(subject) => owners.push(Owner { subject, cluster_roles }),
        }
    }
    owners
}

/// The roles of an owner; those that are missing are the default of the definition.
fn cluster_roles(at: &str, raw: Option<Vec<String>>, faults: &mut Faults) -> Vec<ClusterRoleName> {
    let field = format!("{at}.clusterRoles");
    let raw = raw.unwrap_or_else(|| DEFAULT_CLUSTER_ROLES.map(str::to_owned).to_vec());
    faults.limit(&field, &raw, MAX_CLUSTER_ROLES);
    let roles = raw.iter().enumerate();
    roles
        .filter_map(|(index, name)| faults.keep(&format!("{field}[{index}]"), name.parse()))
        .collect()
}

fn bindings(raw: Vec<RawBinding>, faults: &mut Faults) -> Vec<AdditionalRoleBinding> {
    faults.limit("spec.additionalRoleBindings", &raw, MAX_BINDINGS);
    let mut bindings = Vec::new();
    for (index, raw) in raw.into_iter().enumerate() {
        let at = format!("spec.additionalRoleBindings[{index}]");
        let name = raw.cluster_role_name.parse();
        let cluster_role = faults.keep(&format!("{at}.clusterRoleName"), name);
        let subjects = subjects(&format!("{at}.subjects"), &raw.subjects, faults);
        if let Some(cluster_role) = cluster_role {
            bindings.push(AdditionalRoleBinding { cluster_role, subjects });
        }
    }
    bindings
}

fn subjects(field: &str, raw: &[RawSubject], faults: &mut Faults) -> Vec<Subject> {
    faults.not_empty(field, raw);
    faults.limit(field, raw, MAX_SUBJECTS);
    let mut subjects = Vec::new();
    for (index, raw) in raw.iter().enumerate() {
        let (namespace, api_group) = (raw.namespace.as_deref(), raw.api_group.as_deref());
        match Subject::bound(&raw.kind, &raw.name, namespace, api_group) {
            Ok(subject) => subjects.push(subject),
            Err(error) => {
                let at = format!("{field}[{index}].{}", error.field());
                faults.0.push(Fault::new(at, error));
            }
        }
    }
    subjects
}

fn quotas(raw: Vec<RawQuota>, faults: &mut Faults) -> Vec<BTreeMap<String, String>> {
    faults.limit("spec.resourceQuotas.items", &raw, MAX_QUOTAS);
    let mut quotas = Vec::new();
    for (index, raw) in raw.into_iter().enumerate() {
        let mut amounts = BTreeMap::new();
        for (resource, amount) in raw.hard {
            if !is_amount(&amount) {
                let at = format!("spec.resourceQuotas.items[{index}].hard.{resource}");
                faults.0.push(Fault::new(at, "a quantity that is not negative, such as 8 or 16Gi"));
            }
            let text = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
            amounts.insert(resource, text);
        }
        quotas.push(amounts);
    }
    quotas
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn faults(name: &str, spec: &Value) -> Vec<String> {
        let faults = Tenant::parse(name, spec).unwrap_err();
        faults.into_iter().map(|fault| fault.field).collect()
    }

    #[test]
    fn a_tenant_has_its_owners_with_the_default_roles() {
        let spec = json!({
            "owners": [
                {"kind": "User", "name": "alice"},
                {"kind": "User", "name": "joe", "clusterRoles": ["view", "tenant-resources"]},
            ],
            "additionalRoleBindings": [{
                "clusterRoleName": "argoproj-provisioner",
                "subjects": [
                    {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "joe"},
                ],
            }],
            "resourceQuotas": {"items": [{"hard": {"requests.cpu": "8", "pods": 10}}]},
            "networkPolicies": {},
        });
        let tenant = Tenant::parse("solar", &spec).unwrap();
        assert_eq!(tenant.name.as_str(), "solar");
        let roles = |owner: &Owner| -> Vec<String> {
            owner.cluster_roles.iter().map(ToString::to_string).collect()
        };
        assert_eq!(roles(&tenant.owners[0]), DEFAULT_CLUSTER_ROLES);
        assert_eq!(roles(&tenant.owners[1]), ["view", "tenant-resources"]);
        let subjects = &tenant.additional_role_bindings[0].subjects;
        assert_eq!(*subjects, [Subject::User("joe".into())]);
        assert_eq!(tenant.quota_scope, QuotaScope::Tenant);
        let amounts = ["pods", "requests.cpu"].map(|resource| tenant.quotas[0][resource].as_str());
        assert_eq!(amounts, ["10", "8"]);
    }

    #[test]
    fn all_faults_are_reported_with_their_fields() {
        let spec = json!({
            "owners": [
                {"kind": "User", "name": "alice", "clusterRoles": ["view", "cluster-admin"]},
                {"kind": "User", "name": "alice"},
                {"kind": "Group", "name": "system:authenticated"},
                {"kind": "ServiceAccount", "name": "robot"},
                {"kind": "Robot", "name": "robot"},
            ],
            "additionalRoleBindings": [
                {"clusterRoleName": "a/b", "subjects": []},
                {
                    "clusterRoleName": "view",
                    "subjects": [{"kind": "ServiceAccount", "name": "robot"}],
                },
            ],
            "resourceQuotas": {"scope": "Namespace", "items": [{}, {"hard": {"pods": "lots"}}]},
        });
        assert_eq!(
            faults("solar", &spec),
            [
                "spec.owners[0].clusterRoles[1]",
                "spec.owners[1]",
                "spec.owners[2].name",
                "spec.owners[3].name",
                "spec.owners[4].kind",
                "spec.additionalRoleBindings[0].clusterRoleName",
                "spec.additionalRoleBindings[0].subjects",
                "spec.additionalRoleBindings[1].subjects[0].namespace",
                "spec.resourceQuotas.items[1].hard.pods",
            ]
        );
    }

    #[test]
    fn the_name_and_the_form_are_checked_first() {
        assert_eq!(faults("default", &json!({"owners": []})), ["metadata.name"]);
        assert_eq!(faults("default", &json!(null)), ["metadata.name", "spec"]);
        for spec in [json!({}), json!([]), json!({"owners": "alice"}), json!({"owners": [{}]})] {
            assert_eq!(faults("solar", &spec), ["spec"], "{spec}");
        }
        assert_eq!(faults("solar", &json!({"owners": []})), ["spec.owners"]);
    }

    #[test]
    fn lists_have_limits() {
        let owner = |number: usize| json!({"kind": "User", "name": number.to_string()});
        let owners: Vec<Value> = (0..65).map(owner).collect();
        assert_eq!(faults("solar", &json!({"owners": owners})), ["spec.owners"]);
        let roles = vec!["view"; 17];
        let spec = json!({"owners": [{"kind": "User", "name": "alice", "clusterRoles": roles}]});
        assert_eq!(faults("solar", &spec), ["spec.owners[0].clusterRoles"]);
    }

    /// Any JSON of a few levels, with the names of fields that the parser reads.
    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "User|Group|ServiceAccount|system:masters|.{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(6, 64, 6, |inner| {
            let key = "owners|kind|name|clusterRoles|additionalRoleBindings|subjects|namespace|\
                       clusterRoleName|apiGroup|resourceQuotas|scope|items|hard|[a-z]{1,3}";
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                proptest::collection::btree_map(key, inner, 0..6)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn no_input_panics(name in ".{0,50}", spec in any_json()) {
            if let Err(faults) = Tenant::parse(&name, &spec) {
                prop_assert!(!faults.is_empty());
            }
        }
    }
}
