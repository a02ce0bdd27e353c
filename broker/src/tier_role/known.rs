//! Rights of well-known operators that lead out of the namespace in which a tenant has them, as these
//! are set up by default.

use super::Excess;

/// Verbs that bring something in.
const WRITES: [&str; 4] = ["*", "create", "update", "patch"];

/// API group (`*.` for all below), resources (none: all), and where it leads.
const KNOWN: [(&str, &[&str], &str); 14] = [
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
        "Argo CD applies it with its own rights, wherever the project lets it",
    ),
    (
        "helm.cattle.io",
        &["helmcharts", "helmchartconfigs"],
        "the Helm controller of K3s and RKE2 installs it as cluster-admin",
    ),
    (
        "operators.coreos.com",
        &["subscriptions", "clusterserviceversions", "operatorgroups", "catalogsources"],
        "the Operator Lifecycle Manager gives an operator the rights that it asks for, in the whole \
         cluster too",
    ),
    ("*.crossplane.io", &[], "Crossplane makes what it describes with the provider's credentials"),
    (
        "external-secrets.io",
        &["externalsecrets", "pushsecrets"],
        "a ClusterSecretStore without conditions gives the secrets of others",
    ),
    (
        "cert-manager.io",
        &["certificates", "certificaterequests"],
        "a ClusterIssuer may sign for any host name that it can prove, the broker's among them",
    ),
    (
        "networking.istio.io",
        &["virtualservices", "gateways", "serviceentries", "envoyfilters"],
        "it claims host names that no policy of the broker looks at",
    ),
    (
        "projectcontour.io",
        &["httpproxies"],
        "it claims host names that no policy of the broker looks at",
    ),
    (
        "traefik.io",
        &["ingressroutes", "ingressroutetcps", "ingressrouteudps"],
        "it claims host names that no policy of the broker looks at",
    ),
    (
        "route.openshift.io",
        &["routes", "routes/custom-host"],
        "it claims host names that no policy of the broker looks at",
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

/// Why a right leads out of the namespace; nothing if that is not known.
pub fn leads_out(right: &Excess) -> Option<&'static str> {
    if !right.verbs.iter().any(|verb| WRITES.contains(&verb.as_str())) {
        return None;
    }
    if right.group == "*" {
        return Some("it is a right on the resources of all operators, of future ones too");
    }
    KNOWN
        .iter()
        .find(|(group, resources, _)| {
            let in_group = match group.strip_prefix('*') {
                Some(below) => right.group.ends_with(below),
                None => right.group == *group,
            };
            let resource = right.resource.as_str();
            in_group && (resource == "*" || resources.is_empty() || resources.contains(&resource))
        })
        .map(|(.., why)| *why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_writes_of_what_is_known_lead_out() {
        let right = |group: &str, resource: &str, verb: &str| Excess {
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
            assert!(leads_out(&right(group, resource, verb)).is_some(), "{group}/{resource}");
        }
        for (group, resource, verb) in [
            ("kustomize.toolkit.fluxcd.io", "kustomizations", "get"),
            ("kustomize.toolkit.fluxcd.io", "kustomizations/status", "patch"),
            ("notcrossplane.io", "things", "create"),
            ("metrics.k8s.io", "pods", "get"),
            ("argoproj.io", "workflows", "create"),
        ] {
            assert!(leads_out(&right(group, resource, verb)).is_none(), "{group}/{resource}");
        }
    }
}
