//! Keys of labels and annotations that a Tenant may set on its namespaces.

use tenant_shared::MANAGED_BY_LABEL;

/// Domains whose keys steer the cluster or the broker: pod security, the scheduler, injected
/// containers of the platform. Keys of their subdomains do so too.
const RESERVED_DOMAINS: [&str; 3] = ["tenant-broker.io", "kubernetes.io", "k8s.io"];
/// A subdomain whose keys only describe an application.
const DESCRIPTIVE_DOMAIN: &str = "app.kubernetes.io";

/// The annotation in which `kubectl apply` keeps the file that it applied. It steers nothing.
pub const LAST_APPLIED_ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Annotation with which the API server adds node selectors to all pods of a namespace (admission
/// plugin `PodNodeSelector`): `spec.nodeSelector` of a Tenant.
pub const NODE_SELECTOR_ANNOTATION: &str = "scheduler.alpha.kubernetes.io/node-selector";

/// Annotation of a Tenant that says what its deletion does.
pub const ON_DELETE_ANNOTATION: &str = "tenant-broker.io/on-delete";
/// Value of [`ON_DELETE_ANNOTATION`]: the namespaces stay, so the Tenant may be deleted although it
/// has some.
pub const KEEP_NAMESPACES: &str = "keep-namespaces";

/// Whether a key is a name that Kubernetes accepts (`metadata.labels`), and steers neither the
/// cluster nor the broker.
pub(super) fn may_be_set(key: &str) -> bool {
    let Some((domain, _)) = key.split_once('/') else { return is_key(key) };
    let is_reserved = RESERVED_DOMAINS.iter().any(|reserved| {
        domain.strip_suffix(reserved).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    });
    let is_free = !is_reserved || domain == DESCRIPTIVE_DOMAIN;
    is_free && key != MANAGED_BY_LABEL && is_key(key)
}

/// Whether a text is the key of a label: an optional DNS name and a slash, and a name of 63
/// characters at most.
pub(super) fn is_key(text: &str) -> bool {
    match text.split_once('/') {
        None => is_name(text),
        Some((domain, name)) => is_domain(domain) && is_name(name),
    }
}

/// Whether a text is the value of a label: empty, or a name.
pub(super) fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_name(text)
}

fn is_name(text: &str) -> bool {
    let at_ends = |c: char| c.is_ascii_alphanumeric();
    (1..=63).contains(&text.len())
        && text.chars().all(|c| at_ends(c) || ['-', '_', '.'].contains(&c))
        && text.starts_with(at_ends)
        && text.ends_with(at_ends)
}

fn is_domain(text: &str) -> bool {
    let at_ends = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_part = |part: &str| {
        part.starts_with(at_ends)
            && part.ends_with(at_ends)
            && part.chars().all(|c| at_ends(c) || c == '-')
    };
    (1..=253).contains(&text.len()) && text.split('.').all(is_part)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_that_steer_are_reserved() {
        for key in [
            "tenant-broker.io/tenant",
            "x.tenant-broker.io/y",
            "pod-security.kubernetes.io/enforce",
            "scheduler.alpha.kubernetes.io/node-selector",
            "kubernetes.io/metadata.name",
            "policy.k8s.io/x",
            "app.kubernetes.io/managed-by",
        ] {
            assert!(is_key(key) && !may_be_set(key), "{key}");
        }
        for key in ["team", "example.com/team", "app.kubernetes.io/part-of", "nok8s.io/x"] {
            assert!(may_be_set(key), "{key}");
        }
    }

    #[test]
    fn keys_have_the_form_that_kubernetes_demands() {
        let longest = format!("{}/{}", ["a"; 127].join("."), "b".repeat(63));
        for key in ["a", "a_b.c-d", "A9", &longest] {
            assert!(may_be_set(key), "{key}");
        }
        let longer = "b".repeat(64);
        for key in ["", "/a", "a/", "a/b/c", "-a", "a-", "a b", "A.b/c", "a..b/c", "ä", &longer] {
            assert!(!may_be_set(key), "{key}");
        }
        assert!(is_label_value("") && is_label_value("A-1") && !is_label_value("a,b"));
    }

    proptest! {
        #[test]
        fn no_input_panics(text in ".{0,80}") {
            let _ = may_be_set(&text);
        }
    }
}
