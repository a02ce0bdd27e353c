//! Settings of tenants (`tenants.*`).

use std::collections::BTreeMap;

use regex::Regex;
use tenant_shared::{
    BINDINGS_LABEL, HOME_LABEL, MANAGED_BY_LABEL, SUSPENDED_LABEL, TENANT_LABEL, TENANT_OWNER_ROLE,
    TIER_LABEL,
};

use super::{
    Settings,
    connector::issuer_identifier,
    declaration::{Declaration, Setting},
    parse::{from_str, list},
};
use crate::{
    cluster::{ClusterList, POD_SECURITY, POD_SECURITY_WARN},
    identity::{RbacUserRules, RbacUserRulesError, UserNameSource, is_subject_name},
    issuer::connector::ConnectorSettings,
    tenant::{ClusterRoleName, ProtectedPattern, TenantSettings},
};

/// Maximum characters of `tenants.protected_names` and `tenants.protected_labels`: the API server
/// evaluates the expressions for each namespace that the broker writes.
const MAX_PATTERN_CHARS: usize = 1000;

/// Labels that the broker and the API server give namespaces of tenants.
const GIVEN_LABELS: [&str; 9] = [
    MANAGED_BY_LABEL,
    TENANT_LABEL,
    HOME_LABEL,
    TIER_LABEL,
    BINDINGS_LABEL,
    SUSPENDED_LABEL,
    POD_SECURITY,
    POD_SECURITY_WARN,
    "kubernetes.io/metadata.name",
];

const ENABLED: Setting<bool> = Setting::new(
    "tenants.enabled",
    "false",
    from_str,
    "Whether the cluster has Tenants: tenant-broker install makes the definition of the kind \
     Tenant (tenants.tenant-broker.io), gives the broker the permissions for tenants, and applies \
     its policies in their namespaces, and serve brings the objects of Tenants to their desired \
     state. After a change of this and of the other settings of tenants run tenant-broker install \
     --apply.",
);
const CLUSTER_ROLES: Setting<Vec<ClusterRoleName>> = Setting::new(
    "tenants.cluster_roles",
    "admin,edit,view,tenant-namespace-deleter",
    cluster_roles,
    "The ClusterRoles that Tenants may give in their namespaces. The broker binds no other one.",
);
const PROTECTED_NAMES: Setting<String> = Setting::new(
    "tenants.protected_names",
    "^(default|kube-.*|openshift-.*|cert-manager|ingress-nginx|istio-system)$",
    pattern,
    "Regular expression (RE2) of the names of namespaces that no tenant gets. Without `^` and `$` \
     it matches a part of a name.",
);
const PROTECTED_LABELS: Setting<String> = Setting::new(
    "tenants.protected_labels",
    "",
    labels_pattern,
    "Regular expression (RE2) of the keys of labels that namespaces of tenants get neither from owners \
     nor from the broker, because other programs decide by them: `namespaceSelector` of \
     NetworkPolicies, `allowedRoutes` of Gateways, exemptions of policy engines. Empty: none but \
     those of `kubernetes.io`, `k8s.io` and the broker, which are protected anyway. Without `^` and \
     `$` it matches a part of a key.",
);
const FREE_NAMES: Setting<bool> = Setting::new(
    "tenants.free_names",
    "false",
    from_str,
    "Whether a Tenant may have namespaces that do not begin with its name \
     (`forceTenantPrefix: false`). A stolen credential of the broker may then take every name that \
     no namespace has yet, except for protected ones.",
);
const WRITE: Setting<bool> = Setting::new(
    "tenants.write",
    "false",
    from_str,
    "Whether administrators may create, change and delete Tenants through the broker, which then \
     has the permission to do so in the cluster.",
);
const DIRECT_NAMESPACES: Setting<bool> = Setting::new(
    "tenants.direct_namespaces",
    "false",
    from_str,
    "Whether owners in `tenants.groups` may create namespaces of their tenants directly at the API \
     server, as users of the cluster.",
);
const GROUPS: Setting<Vec<String>> = Setting::new(
    "tenants.groups",
    "",
    groups,
    "Groups whose people may be members of tenants; empty: everybody whom a Tenant names. A person in \
     none of them has no rights, whatever a Tenant says. With `tenants.direct_namespaces` these groups \
     of the cluster may create namespaces, and an empty list is a fault.",
);
const EVERYBODY: Setting<String> = Setting::new(
    "tenants.everybody",
    "projectcapsule.dev",
    from_str,
    "Group that everybody is in who signs in, for the owners and subjects of Tenants.",
);
const CLUSTER_LISTS: Setting<Vec<ClusterList>> = Setting::new(
    "tenants.cluster_lists",
    "",
    list,
    "Cluster-scoped resources that the broker may list, so that Tenants can grant lists of them \
     (`proxySettings`) through the gateway: storageclasses, ingressclasses, priorityclasses, \
     runtimeclasses and nodes.",
);
const POD_NODE_SELECTOR: Setting<bool> = Setting::new(
    "tenants.pod_node_selector",
    "false",
    from_str,
    "Whether the API server has the admission plugin `PodNodeSelector`, which puts the pods of a tenant \
     on the nodes of `spec.nodeSelector`. The API server does not tell. Without it Tenants with a \
     selector have the condition `NotCarriedOut`.",
);
const USER_CLAIM: Setting<UserClaim> = Setting::new(
    "tenants.user_claim",
    "email",
    user_claim,
    "Name of a person as a User in Tenants: `email` is the verified e-mail address, `username` the \
     claim preferred_username of one connector, which needs `tenants.user_prefix`.",
);
const USER_ISSUER: Setting<String> = Setting::derived(
    "tenants.user_issuer",
    "that of the only connector",
    issuer_identifier,
    "The connector's issuer whose user names count with `tenants.user_claim = \"username\"`. People \
     of other connectors and local accounts have no name as a User then.",
);
const USER_PREFIX: Setting<String> = Setting::new(
    "tenants.user_prefix",
    "",
    from_str,
    "Prefix of the name of every User, such as `sso:`.",
);
pub(super) const SETTINGS: &[&dyn Declaration] = &[
    &ENABLED,
    &CLUSTER_ROLES,
    &PROTECTED_NAMES,
    &PROTECTED_LABELS,
    &FREE_NAMES,
    &WRITE,
    &DIRECT_NAMESPACES,
    &GROUPS,
    &EVERYBODY,
    &CLUSTER_LISTS,
    &POD_NODE_SELECTOR,
    &USER_CLAIM,
    &USER_ISSUER,
    &USER_PREFIX,
];

/// Source of the names of people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UserClaim {
    Email,
    Username,
}

pub(super) fn read(s: &mut Settings) -> TenantSettings {
    let settings = TenantSettings {
        enabled: ENABLED.read(s),
        cluster_roles: CLUSTER_ROLES.read(s),
        protected_names: PROTECTED_NAMES.read(s).into(),
        protected_labels: Some(PROTECTED_LABELS.read(s))
            .filter(|pattern| !pattern.is_empty())
            .map(Into::into),
        free_names: FREE_NAMES.read(s),
        write: WRITE.read(s),
        direct_namespaces: DIRECT_NAMESPACES.read(s),
        groups: GROUPS.read(s),
        everybody: EVERYBODY.read(s),
        cluster_lists: CLUSTER_LISTS.read(s),
        pod_node_selector: POD_NODE_SELECTOR.read(s),
    };
    if settings.direct_namespaces && settings.groups.is_empty() {
        DIRECT_NAMESPACES.fault(
            s,
            "set tenants.groups as well: the groups of the cluster that may create namespaces",
        );
    }
    settings
}

/// Reads how people are named. The rules with a fault have no meaning.
pub(super) fn rbac_user_rules(
    s: &mut Settings,
    everybody: &str,
    connectors: &BTreeMap<String, ConnectorSettings>,
) -> RbacUserRules {
    let claim = USER_CLAIM.read(s);
    let prefix = USER_PREFIX.read(s);
    let issuer = USER_ISSUER.read(s);
    let source = match claim {
        UserClaim::Email => {
            if !issuer.is_empty() {
                USER_ISSUER.fault(s, "it counts with tenants.user_claim = \"username\" only");
            }
            UserNameSource::Email
        }
        UserClaim::Username => {
            UserNameSource::Username { issuer: issuer_of(s, issuer, connectors) }
        }
    };
    RbacUserRules::new(source, &prefix, everybody).unwrap_or_else(|error| {
        let setting = match error {
            RbacUserRulesError::Everybody => &EVERYBODY,
            RbacUserRulesError::NoPrefix | RbacUserRulesError::Prefix => &USER_PREFIX,
        };
        setting.fault(s, &error.to_string());
        RbacUserRules::default()
    })
}

/// The issuer whose user names count: this one, or that of the only connector.
fn issuer_of(
    s: &mut Settings,
    issuer: String,
    connectors: &BTreeMap<String, ConnectorSettings>,
) -> String {
    if issuer.is_empty() {
        let mut issuers = connectors.values().map(|connector| connector.issuer.as_str());
        if let (Some(only), None) = (issuers.next(), issuers.next()) {
            return only.to_owned();
        }
        USER_CLAIM.fault(
            s,
            "username needs exactly one connector, or tenants.user_issuer, because the same name may \
             belong to different people at two providers",
        );
    } else if connectors.values().all(|connector| connector.issuer != issuer) {
        USER_ISSUER.fault(s, "no connector has this issuer");
    }
    issuer
}

fn user_claim(text: &str) -> Result<UserClaim, String> {
    match text {
        "email" => Ok(UserClaim::Email),
        "username" => Ok(UserClaim::Username),
        _ => Err("email or username".to_owned()),
    }
}

fn cluster_roles(text: &str) -> Result<Vec<ClusterRoleName>, String> {
    let roles: Vec<ClusterRoleName> = list(text)?;
    if roles.iter().any(|role| role.as_str() == TENANT_OWNER_ROLE) {
        return Err(format!(
            "leave {TENANT_OWNER_ROLE} out: the broker binds it in the homes of tenants, for owners"
        ));
    }
    Ok(roles)
}

fn groups(text: &str) -> Result<Vec<String>, String> {
    let groups: Vec<String> = list(text)?;
    match groups.iter().find(|group| !is_subject_name(group)) {
        Some(_) => Err("names of groups without control characters, which do not begin with \
                        system:, because those groups belong to Kubernetes"
            .to_owned()),
        None => Ok(groups),
    }
}

/// A regular expression that the API server understands as well. It has the syntax of Go (RE2),
/// which lacks some of what Rust's has: operators in character classes, and most groups `(?…)`.
fn pattern(text: &str) -> Result<String, String> {
    if text.chars().count() > MAX_PATTERN_CHARS || !text.chars().all(|c| c.is_ascii_graphic()) {
        return Err(format!(
            "at most {MAX_PATTERN_CHARS} characters of ASCII without spaces, because names of \
             namespaces and keys of labels have no others"
        ));
    }
    let only_in_rust = ["&&", "~~", "[["].iter().any(|operator| text.contains(operator));
    if only_in_rust || text.replace("(?:", "").contains("(?") {
        return Err("a plain regular expression: no (? but (?: and no &&, ~~ and [[".to_owned());
    }
    match Regex::new(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(format!("a regular expression (RE2): {}", error_line(&error))),
    }
}

/// A regular expression of keys of labels, none of which the broker or the API server gives namespaces.
fn labels_pattern(text: &str) -> Result<String, String> {
    let expression = pattern(text)?;
    let protected = ProtectedPattern::from(expression.clone());
    match GIVEN_LABELS.iter().find(|key| !text.is_empty() && protected.matches(key)) {
        Some(key) => Err(format!(
            "an expression that does not match {key}, because each namespace of a tenant may have \
             this label: begin with ^ and name the domain"
        )),
        None => Ok(expression),
    }
}

/// The last line of an error of `regex`, which says what is wrong; the others show the place.
fn error_line(error: &regex::Error) -> String {
    let text = error.to_string();
    text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::{super::Config, *};

    fn config(toml: &str) -> Result<Config, String> {
        let settings = Settings::load(Some(("test.toml", toml)), std::iter::empty(), &[]);
        Config::from_settings(settings.unwrap()).map_err(|faults| faults.to_string())
    }

    const CONNECTOR: &str =
        "[connectors.a]\nissuer = 'https://a.example.com'\nclient_id = 'broker'\n";
    const SECOND: &str = "[connectors.b]\nissuer = 'https://b.example.com'\nclient_id = 'broker'\n";

    #[test]
    fn the_defaults_are_those_of_the_domain() {
        let config = config("").unwrap();
        assert_eq!(config.tenants, TenantSettings::default());
        assert_eq!(config.rbac_user_rules, RbacUserRules::default());
    }

    #[test]
    fn all_settings_of_an_example_are_read() {
        let config = config(
            "[tenants]\nenabled = true\ncluster_roles = ['admin', 'view']\n\
             protected_names = '^(kube-.*|monitoring)$'\n\
             protected_labels = '^control-plane$'\nfree_names = true\nwrite = true\n\
             direct_namespaces = true\ngroups = ['developers']\neverybody = 'staff'\n\
             cluster_lists = ['nodes', 'storageclasses']\npod_node_selector = true",
        )
        .unwrap();
        let role = |name: &str| name.parse::<ClusterRoleName>().unwrap();
        let expected = TenantSettings {
            enabled: true,
            cluster_roles: vec![role("admin"), role("view")],
            protected_names: "^(kube-.*|monitoring)$".to_owned().into(),
            protected_labels: Some("^control-plane$".to_owned().into()),
            free_names: true,
            write: true,
            direct_namespaces: true,
            groups: vec!["developers".to_owned()],
            everybody: "staff".to_owned(),
            cluster_lists: vec![ClusterList::Nodes, ClusterList::StorageClasses],
            pod_node_selector: true,
        };
        assert_eq!(config.tenants, expected);
        let rules = RbacUserRules::new(UserNameSource::Email, "", "staff").unwrap();
        assert_eq!(config.rbac_user_rules, rules);
    }

    #[test]
    fn faults_name_the_setting_and_say_what_is_possible() {
        for (line, key, reason) in [
            ("cluster_roles = ['cluster-admin']", "cluster_roles", "cannot give cluster-admin"),
            ("cluster_roles = ['tenant-owner']", "cluster_roles", "leave tenant-owner out"),
            ("protected_names = 'kube-('", "protected_names", "unclosed group"),
            ("protected_names = '(?!kube)'", "protected_names", "no (? but (?:"),
            ("protected_names = '[a-z&&b]'", "protected_names", "no &&"),
            ("protected_names = 'küche'", "protected_names", "ASCII"),
            ("protected_labels = 'a('", "protected_labels", "unclosed group"),
            (
                "protected_labels = 'kubernetes'",
                "protected_labels",
                "does not match app.kubernetes",
            ),
            ("protected_labels = '.*'", "protected_labels", "does not match app.kubernetes"),
            ("direct_namespaces = true", "direct_namespaces", "tenants.groups"),
            ("groups = ['system:masters']", "groups", "belong to Kubernetes"),
            ("everybody = 'system:authenticated'", "everybody", "belong to Kubernetes"),
            ("cluster_lists = ['secrets']", "cluster_lists", "storageclasses"),
            ("cluster_lists = ['persistentvolumes']", "cluster_lists", "storageclasses"),
            ("user_claim = 'sub'", "user_claim", "email or username"),
            ("user_prefix = 'system:'", "user_prefix", "belong to Kubernetes"),
            ("user_issuer = 'https://a.example.com'", "user_issuer", "user_claim"),
        ] {
            let faults = config(&format!("[tenants]\n{line}")).unwrap_err();
            assert!(faults.contains(&format!("tenants.{key} (test.toml)")), "{line}: {faults}");
            assert!(faults.contains(reason), "{line}: {faults}");
        }
    }

    #[test]
    fn user_names_are_those_of_one_connector_with_a_prefix() {
        let by_username = "[tenants]\nuser_claim = 'username'\nuser_prefix = 'sso:'\n";
        let rules = |issuer: &str| {
            let source = UserNameSource::Username { issuer: issuer.to_owned() };
            RbacUserRules::new(source, "sso:", "projectcapsule.dev").unwrap()
        };
        let of_only = config(&format!("{by_username}{CONNECTOR}")).unwrap();
        assert_eq!(of_only.rbac_user_rules, rules("https://a.example.com"));
        let named = format!("{by_username}user_issuer = 'https://b.example.com'\n");
        let of_named = config(&format!("{named}{CONNECTOR}{SECOND}")).unwrap();
        assert_eq!(of_named.rbac_user_rules, rules("https://b.example.com"));
        for (toml, reason) in [
            (by_username.to_owned(), "exactly one connector"),
            (format!("{by_username}{CONNECTOR}{SECOND}"), "exactly one connector"),
            (format!("{named}{CONNECTOR}"), "no connector has this issuer"),
            (
                format!("[tenants]\nuser_claim = 'username'\n{CONNECTOR}"),
                "tenants.user_prefix, such as",
            ),
        ] {
            let faults = config(&toml).unwrap_err();
            assert!(faults.contains(reason), "{toml}: {faults}");
        }
    }
}
