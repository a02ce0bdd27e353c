//! Names of tenants, as Rust and as rules of the definition (CEL).

use std::{fmt, str::FromStr};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use tenant_shared::{MAX_TENANT_NAME_LENGTH, NAME_PREFIX, TENANT_LABEL, is_dns_label};
use uuid::Uuid;

/// Words that are no name, and begin none as `WORD-`: of namespaces that Kubernetes and its
/// distributions make, of the tenants' homes, and of spaces.
const RESERVED: [&str; 5] = ["kube", "tenant", "openshift", "system", "default"];

/// Name of a tenant: 1 to 40 lower case letters, digits and dashes. It begins with a letter, does
/// not end with a dash, and is neither reserved nor a uuid.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TenantName(String);

/// Reason why a text is no name of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TenantNameError {
    #[error(
        "a name of a tenant has 1 to 40 lower case letters, digits and dashes, begins with a \
         letter and does not end with a dash"
    )]
    Malformed,
    #[error(
        "kube, tenant, openshift, system and default are reserved, and so are names that begin \
         with one of them and a dash"
    )]
    Reserved,
    #[error("a uuid is reserved for the workspaces of persons")]
    Uuid,
}

impl TenantName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The tenant of an object, by its label. A label that is no name of a tenant is nobody's.
    pub fn of_object(object: &ObjectMeta) -> Option<Self> {
        object.labels.as_ref()?.get(TENANT_LABEL)?.parse().ok()
    }

    /// Whether an object has the label of this tenant.
    pub fn is_tenant_of(&self, object: &ObjectMeta) -> bool {
        let label = object.labels.as_ref().and_then(|labels| labels.get(TENANT_LABEL));
        label.is_some_and(|label| label == self.as_str())
    }
}

impl fmt::Display for TenantName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for TenantName {
    type Err = TenantNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let begins_with_letter = text.starts_with(|first: char| first.is_ascii_lowercase());
        if text.len() > MAX_TENANT_NAME_LENGTH || !begins_with_letter || !is_dns_label(text) {
            return Err(TenantNameError::Malformed);
        }
        if text.split('-').next().is_some_and(|word| RESERVED.contains(&word)) {
            return Err(TenantNameError::Reserved);
        }
        // Other notations of a uuid have another length.
        if text.len() == 36 && Uuid::try_parse(text).is_ok() {
            return Err(TenantNameError::Uuid);
        }
        Ok(Self(text.to_owned()))
    }
}

/// The same rules for the root of the schema. The API server names no field there, so the messages
/// do.
pub(super) fn rules() -> Value {
    let rules = tenant_name_rules("self.metadata.name");
    let rules = rules.map(|(rule, error)| {
        let message = format!("metadata.name: {error}");
        json!({"rule": rule, "message": message})
    });
    json!(rules)
}

/// The same rules as CEL, for the value of this expression.
pub fn tenant_name_rules(name: &str) -> [(String, TenantNameError); 3] {
    [
        (
            format!(
                "{name}.matches('^[a-z]([-a-z0-9]{{0,{}}}[a-z0-9])?$')",
                MAX_TENANT_NAME_LENGTH - 2
            ),
            TenantNameError::Malformed,
        ),
        (format!("!{}", is_reserved(name, "")), TenantNameError::Reserved),
        (
            format!(
                "!{name}.matches('^[0-9a-f]{{8}}-[0-9a-f]{{4}}-[0-9a-f]{{4}}-[0-9a-f]{{4}}-\
                 [0-9a-f]{{12}}$')"
            ),
            TenantNameError::Uuid,
        ),
    ]
}

/// CEL: whether the value of this expression is a namespace whose name looks like that of a home,
/// but with a reserved word, so that it is no tenant's home.
pub fn is_reserved_home(namespace: &str) -> String {
    is_reserved(namespace, NAME_PREFIX)
}

fn is_reserved(name: &str, prefix: &str) -> String {
    format!("{name}.matches('^{prefix}({})(-.*)?$')", RESERVED.join("|"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_object_is_of_the_tenant_of_its_label() {
        let solar: TenantName = "solar".parse().unwrap();
        for (label, expected) in [("solar", true), ("lunar", false)] {
            let labels = [(TENANT_LABEL.to_owned(), label.to_owned())];
            let object = ObjectMeta { labels: Some(labels.into()), ..ObjectMeta::default() };
            assert_eq!(solar.is_tenant_of(&object), expected, "{label}");
        }
        assert!(!solar.is_tenant_of(&ObjectMeta::default()));
    }

    #[test]
    fn valid_names_round_trip() {
        let longest = "a".repeat(40);
        for text in ["a", "solar", "solar-wind-2", "kubernetes", "systems", "tenants", &longest] {
            assert_eq!(text.parse::<TenantName>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn invalid_names_are_refused_with_the_rule() {
        let longer = "a".repeat(41);
        for text in ["", "Solar", "1solar", "-solar", "solar-", "solar.wind", "sölar", &longer] {
            assert_eq!(text.parse::<TenantName>(), Err(TenantNameError::Malformed), "{text}");
        }
        for text in ["kube", "kube-system", "tenant-solar", "openshift-", "system", "default-x"] {
            assert!(text.parse::<TenantName>().is_err(), "{text}");
        }
        assert_eq!("default".parse::<TenantName>(), Err(TenantNameError::Reserved));
        let uuid = "a1b2c3d4-0000-4000-8000-000000000000".parse::<TenantName>();
        assert_eq!(uuid, Err(TenantNameError::Uuid));
    }

    #[test]
    fn the_label_names_the_tenant() {
        let labelled = |value: &str| {
            let labels = [(TENANT_LABEL.to_owned(), value.to_owned())];
            ObjectMeta { labels: Some(labels.into()), ..ObjectMeta::default() }
        };
        let name = TenantName::of_object(&labelled("solar")).map(|name| name.to_string());
        assert_eq!(name.as_deref(), Some("solar"));
        for value in ["", "tenant-solar", "Solar", "kube-system"] {
            assert_eq!(TenantName::of_object(&labelled(value)), None, "{value}");
        }
        assert_eq!(TenantName::of_object(&ObjectMeta::default()), None);
    }

    proptest! {
        #[test]
        fn no_input_panics(text in ".{0,50}") {
            let _ = text.parse::<TenantName>();
        }

        #[test]
        fn the_home_and_the_namespaces_of_a_name_are_dns_labels(text in "[a-z][-a-z0-9]{0,45}") {
            if let Ok(name) = text.parse::<TenantName>() {
                let home = format!("tenant-{name}");
                let namespace = format!("{}-x", name.as_str());
                prop_assert!(is_dns_label(&home));
                prop_assert!(is_dns_label(&namespace));
            }
        }
    }
}
