//! Rules for the host names of Ingresses, and of routes and Gateways of the Gateway API.
//!
//! A tenant may not claim the broker's own host, because it could serve a forged sign-in page
//! there. It may not claim all hosts, because an object without hosts gets all requests that nobody
//! else claims. If its tier has `ingress_host_suffix`, hosts must end with the namespace's own
//! suffix.

use tenant_shared::TIER_LABEL;

use super::{
    Parameters,
    cel::{fixed, in_namespace_of_tenant, label},
    policy::Message,
    quoted,
};
use crate::tier::HostSuffix;

/// API group of the Gateway API.
pub(super) const GATEWAY_API_GROUP: &str = "gateway.networking.k8s.io";
/// Resources of the Gateway API that name hosts: routes in `spec.hostnames`, the others in
/// `spec.listeners[].hostname`.
pub(super) const GATEWAY_API_RESOURCES: [&str; 5] =
    ["httproutes", "grpcroutes", "tlsroutes", "gateways", "listenersets"];
/// The annotation of ingress-nginx that adds hosts to an Ingress.
const SERVER_ALIAS_ANNOTATION: &str = "nginx.ingress.kubernetes.io/server-alias";
/// A suffix that no host name has, because host names have no slash.
const UNMATCHABLE_SUFFIX: &str = "/";

/// The rules for host names.
pub(super) struct HostRules<'a> {
    /// The host of `public_url`, unless that is an IP address.
    broker: Option<&'a str>,
    /// Every tier with its suffix; empty if no tier has a suffix.
    suffixes: Vec<(&'a str, Option<&'a HostSuffix>)>,
    /// Whether there are tenants, whose namespaces need not have a tier.
    has_tenants: bool,
}

impl<'a> HostRules<'a> {
    pub(super) fn new(parameters: &'a Parameters) -> Self {
        let suffixes: Vec<_> = parameters
            .host_suffixes
            .iter()
            .map(|(tier, suffix)| (tier.as_str(), suffix.as_ref()))
            .collect();
        let any = suffixes.iter().any(|(_, suffix)| suffix.is_some());
        Self {
            broker: parameters.public_host.as_deref(),
            suffixes: if any { suffixes } else { Vec::new() },
            has_tenants: parameters.tenants.enabled,
        }
    }

    /// CEL variables: `hosts` is a list of lists of host names, where an empty name means all
    /// hosts; `suffix` is the required suffix.
    pub(super) fn variables(&self) -> Vec<(&'static str, String)> {
        let listeners = "[object.spec.?listeners.orValue([]).filter(l, !(l.?protocol.orValue(\"\") \
                         in [\"TCP\", \"UDP\"])).map(l, l.?hostname.orValue(\"\"))]";
        let names = "[object.spec.?hostnames.orValue([]).size() == 0 ? [\"\"] : \
                     object.spec.hostnames]";
        let ingress = "[object.spec.?rules.orValue([]).map(r, r.?host.orValue(\"\"))] + \
                       object.spec.?tls.orValue([]).map(t, t.?hosts.orValue([])) + \
                       (has(object.spec.defaultBackend) ? [[\"\"]] : [])";
        let mut variables = vec![(
            "hosts",
            format!(
                "request.resource.resource == \"ingresses\" ? {ingress} : \
                 request.resource.resource in [\"gateways\", \"listenersets\"] ? {listeners} : \
                 request.resource.group == {} ? {names} : []",
                quoted(GATEWAY_API_GROUP)
            ),
        )];
        if !self.suffixes.is_empty() {
            let tier = label("namespaceObject", TIER_LABEL);
            let entries: Vec<String> =
                self.suffixes.iter().map(|(tier, suffix)| entry(tier, *suffix)).collect();
            variables.push((
                "suffix",
                format!(
                    "{tier} == \"\" ? {} : {{{}}}[?{tier}].orValue({})",
                    self.without_tier(),
                    entries.join(", "),
                    quoted(UNMATCHABLE_SUFFIX)
                ),
            ));
        }
        variables
    }

    /// CEL: the suffix of a namespace without a tier. Namespaces of workspaces of earlier versions
    /// have no such label, and no suffix; `doctor` counts them. A Tenant need not have a tier, so
    /// the strictest rule holds: the suffix of all tiers that have one, or no host if they differ.
    fn without_tier(&self) -> String {
        if !self.has_tenants {
            return suffix(None);
        }
        let mut suffixes = self.suffixes.iter().filter_map(|(_, suffix)| *suffix);
        let first = suffixes.next();
        let strictest = match first {
            Some(first) if suffixes.all(|other| other == first) => suffix(Some(first)),
            _ => quoted(UNMATCHABLE_SUFFIX),
        };
        format!("({} ? {strictest} : \"\")", in_namespace_of_tenant())
    }

    /// CEL: the message about a host without the suffix.
    fn suffix_message(&self) -> String {
        let suffix = "\"hosts of this namespace end with \" + variables.suffix + \" \
                      (ingress_host_suffix of its tier)\"";
        if !self.has_tenants {
            return suffix.to_owned();
        }
        format!(
            "variables.suffix == {} ? {} : {suffix}",
            quoted(UNMATCHABLE_SUFFIX),
            quoted(
                "this namespace may have no hosts, because its tier is not configured, or its \
                 Tenant has none and the suffixes of the tiers differ (ingress_host_suffix): name \
                 a tier in the Tenant (spec.tier)"
            )
        )
    }

    /// The validations of the host names.
    pub(super) fn validations(&self) -> Vec<(String, Message)> {
        let all = |rule: &str| format!("variables.hosts.all(names, names.all(h, {rule}))");
        let mut validations = vec![
            (
                "request.resource.resource != \"gateways\" || \
                 object.spec.?addresses.orValue([]).size() == 0"
                    .to_owned(),
                fixed("a tenant's Gateway may not choose its address (spec.addresses)"),
            ),
            (
                all("!(h in [\"\", \"*\"])"),
                fixed(
                    "name every host: without a host, or with a default backend, this would get the \
                     requests for all hosts that nobody else claims",
                ),
            ),
            (
                format!(
                    "!({} in object.metadata.?annotations.orValue({{}}))",
                    quoted(SERVER_ALIAS_ANNOTATION)
                ),
                Message::Fixed(format!(
                    "the annotation {SERVER_ALIAS_ANNOTATION} is not allowed in a tenant's \
                     namespace: write the hosts into spec.rules"
                )),
            ),
        ];
        if let Some(broker) = self.broker {
            let broker = quoted(broker);
            validations.push((
                all(&format!(
                    "!(h.lowerAscii() == {broker} || (h.startsWith(\"*\") && \
                     {broker}.endsWith(h.lowerAscii().substring(1))))"
                )),
                Message::Fixed(format!("{broker} is the host of the broker (public_url)")),
            ));
        }
        if !self.suffixes.is_empty() {
            validations.push((
                all("(\".\" + h).endsWith(variables.suffix)"),
                Message::Built(
                    self.suffix_message(),
                    "hosts end with ingress_host_suffix of the namespace's tier".to_owned(),
                ),
            ));
        }
        validations
    }
}

/// A tier with its suffix, as an entry of a CEL map.
fn entry(tier: &str, of_tier: Option<&HostSuffix>) -> String {
    format!("{}: {}", quoted(tier), suffix(of_tier))
}

/// CEL: the suffix that hosts in the namespace of the request must have.
fn suffix(of_tier: Option<&HostSuffix>) -> String {
    of_tier.map_or_else(
        || quoted(""),
        |HostSuffix { before, after }| {
            format!("{} + request.namespace + {}", quoted(before), quoted(after))
        },
    )
}
