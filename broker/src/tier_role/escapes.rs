//! Known escapes: permissions on resources of well-known operators that, with the operator's
//! default setup, allow an escape from the tenant's namespace.

use super::ExtraPermission;

/// Verbs that create or change an object.
const WRITE_VERBS: [&str; 4] = ["*", "create", "update", "patch"];

/// API group (`*.` for all groups below it), resources (none: all of them), and the reason.
const KNOWN_ESCAPES: [(&str, &[&str], &str); 15] = [
    (
        "",
        &["resourcequotas/status"],
        "the API server enforces the limits in it, so the tenant sets its own limits",
    ),
    (
        "kustomize.toolkit.fluxcd.io",
        &["kustomizations"],
        "Flux applies it as cluster-admin, unless its multi-tenancy lockdown is on",
    ),
    (
        "helm.toolkit.fluxcd.io",
        &["helmreleases"],
        "Flux installs it as cluster-admin, unless its multi-tenancy lockdown is on",
    ),
    (
        "argoproj.io",
        &["applications", "applicationsets", "appprojects"],
        "Argo CD applies it with its own rights, wherever the project allows it",
    ),
    (
        "helm.cattle.io",
        &["helmcharts", "helmchartconfigs"],
        "the Helm controller of K3s and RKE2 installs it as cluster-admin",
    ),
    (
        "operators.coreos.com",
        &["subscriptions", "clusterserviceversions", "operatorgroups", "catalogsources"],
        "the Operator Lifecycle Manager gives an operator the rights that it asks for, in the \
         whole cluster too",
    ),
    (
        "*.crossplane.io",
        &[],
        "Crossplane creates what it describes with the provider's credentials",
    ),
    (
        "external-secrets.io",
        &["externalsecrets", "pushsecrets"],
        "a ClusterSecretStore without conditions exposes the secrets of others",
    ),
    (
        "cert-manager.io",
        &["certificates", "certificaterequests"],
        "a ClusterIssuer may sign for any host name that it can prove, the broker's among them",
    ),
    (
        "networking.istio.io",
        &["virtualservices", "gateways", "serviceentries", "envoyfilters"],
        "it claims host names that no policy of the broker checks",
    ),
    (
        "projectcontour.io",
        &["httpproxies"],
        "it claims host names that no policy of the broker checks",
    ),
    (
        "traefik.io",
        &["ingressroutes", "ingressroutetcps", "ingressrouteudps"],
        "it claims host names that no policy of the broker checks",
    ),
    (
        "route.openshift.io",
        &["routes", "routes/custom-host"],
        "it claims host names that no policy of the broker checks",
    ),
    (
        "",
        &["endpoints"],
        "with it a Service or an Ingress reaches other namespaces' pods (CVE-2021-25740)",
    ),
    (
        "discovery.k8s.io",
        &["endpointslices"],
        "with it a Service or an Ingress reaches other namespaces' pods (CVE-2021-25740)",
    ),
];

/// Why a permission allows an escape from the namespace; `None` if no way is known.
pub fn escape_reason(permission: &ExtraPermission) -> Option<&'static str> {
    if !permission.verbs.iter().any(|verb| WRITE_VERBS.contains(&verb.as_str())) {
        return None;
    }
    if permission.group == "*" {
        return Some("it is a right on the resources of all operators, of future ones too");
    }
    KNOWN_ESCAPES
        .iter()
        .find(|(group, resources, _)| {
            let in_group = match group.strip_prefix('*') {
                Some(below) => permission.group.ends_with(below),
                None => permission.group == *group,
            };
            let resource = permission.resource.as_str();
            in_group && (resource == "*" || resources.is_empty() || resources.contains(&resource))
        })
        .map(|(.., why)| *why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_writes_of_known_resources_escape() {
        let permission = |group: &str, resource: &str, verb: &str| ExtraPermission {
            group: group.to_owned(),
            resource: resource.to_owned(),
            verbs: [verb.to_owned()].into(),
        };
        for (group, resource, verb) in [
            ("kustomize.toolkit.fluxcd.io", "kustomizations", "create"),
            ("kustomize.toolkit.fluxcd.io", "*", "patch"),
            ("database.aws.crossplane.io", "rdsinstances", "*"),
            ("*", "widgets", "update"),
            ("", "endpoints", "update"),
        ] {
            assert!(
                escape_reason(&permission(group, resource, verb)).is_some(),
                "{group}/{resource}"
            );
        }
        for (group, resource, verb) in [
            ("kustomize.toolkit.fluxcd.io", "kustomizations", "get"),
            ("kustomize.toolkit.fluxcd.io", "kustomizations/status", "patch"),
            ("notcrossplane.io", "things", "create"),
            ("metrics.k8s.io", "pods", "get"),
            ("argoproj.io", "workflows", "create"),
        ] {
            assert!(
                escape_reason(&permission(group, resource, verb)).is_none(),
                "{group}/{resource}"
            );
        }
    }
}
