//! Environment variables that begin with the prefix of settings and are none. A kubelet describes
//! the Services of a pod's namespace to its containers (Kubernetes, `pkg/kubelet/envvars`), as
//! Docker described links: a Service `tenant-broker` gives `TENANT_BROKER_PORT=tcp://10.0.0.7:8443`
//! and others, and so does each Service whose name begins with `tenant-broker-`.

use std::net::{IpAddr, SocketAddr};

/// The protocols of a Service's ports, as names of variables have them.
const PROTOCOLS: [&str; 3] = ["TCP", "UDP", "SCTP"];

/// The value that a kubelet writes into a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VariableKind<'a> {
    /// The Service's IP address.
    Address,
    /// The number of a port; this one, if the name contains it.
    Port(Option<u16>),
    /// This protocol, in lower case.
    Protocol(&'a str),
    /// `tcp://10.0.0.7:8443`; this protocol and port, if the name contains them.
    Link(Option<(&'a str, u16)>),
}

/// Whether a kubelet sets this variable, given by the part of its name after `TENANT_BROKER_` and
/// its value, for a Service whose name is `tenant-broker` or begins with `tenant-broker-`.
///
/// Both name and value must have the kubelet's form, so that a misspelt setting remains a fault.
pub(super) fn is_service_variable(rest: &str, value: &str) -> bool {
    kinds_of(rest).into_iter().any(|kind| kind.matches(value))
}

/// The forms that a kubelet's value can have in a variable of this name; empty if the name is none
/// of a kubelet's. Several are possible: `PORT_80_TCP_PORT` is the port 80 of `tenant-broker`, or
/// the link of `tenant-broker-port-80-tcp`.
///
/// A name with `__` has no form, because it is the key of a table: a condition of a workload
/// (`workloads.NAME.rules.RULE.claims.CLAIM`), whose names people choose, must never be ignored. A
/// Service with `--` in its name is therefore not recognised.
pub(super) fn kinds_of(rest: &str) -> Vec<VariableKind<'_>> {
    let fields: Vec<&str> = rest.split('_').collect();
    let is_plain = |field: &&str| {
        !field.is_empty() && field.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit())
    };
    if !fields.iter().all(is_plain) {
        return Vec::new();
    }
    let mut kinds = Vec::new();
    if fields.ends_with(&["SERVICE", "HOST"]) {
        kinds.push(VariableKind::Address);
    }
    // A port's name may follow.
    if fields.windows(2).any(|pair| pair == ["SERVICE", "PORT"]) {
        kinds.push(VariableKind::Port(None));
    }
    if fields.ends_with(&["PORT"]) {
        kinds.push(VariableKind::Link(None));
    }
    let numbered = match fields.as_slice() {
        [.., "PORT", port, protocol] => Some((*port, *protocol, "")),
        [.., "PORT", port, protocol, field] => Some((*port, *protocol, *field)),
        _ => None,
    };
    kinds.extend(numbered.and_then(|(port, protocol, field)| numbered_kind(port, protocol, field)));
    kinds
}

/// The form of `…_PORT_<port>_<protocol>[_<part>]`.
fn numbered_kind<'a>(port: &str, protocol: &'a str, field: &str) -> Option<VariableKind<'a>> {
    let port: u16 = port.parse().ok()?;
    if !PROTOCOLS.contains(&protocol) {
        return None;
    }
    match field {
        "" => Some(VariableKind::Link(Some((protocol, port)))),
        "PROTO" => Some(VariableKind::Protocol(protocol)),
        "PORT" => Some(VariableKind::Port(Some(port))),
        "ADDR" => Some(VariableKind::Address),
        _ => None,
    }
}

impl VariableKind<'_> {
    fn matches(self, value: &str) -> bool {
        match self {
            Self::Address => value.parse::<IpAddr>().is_ok(),
            Self::Port(named) => {
                value.parse::<u16>().is_ok_and(|port| named.is_none_or(|named| port == named))
            }
            Self::Protocol(named) => value == named.to_ascii_lowercase(),
            Self::Link(named) => link(value).is_some_and(|(protocol, port)| {
                named.is_none_or(|named| (protocol.as_str(), port) == named)
            }),
        }
    }
}

/// Protocol, in capitals, and port of a link.
fn link(value: &str) -> Option<(String, u16)> {
    let (protocol, address) = value.split_once("://")?;
    let address: SocketAddr = address.parse().ok()?;
    let capitals = protocol.to_ascii_uppercase();
    let is_lower_case = protocol.bytes().all(|b| b.is_ascii_lowercase());
    (is_lower_case && PROTOCOLS.contains(&capitals.as_str())).then_some((capitals, address.port()))
}

#[cfg(test)]
mod tests {
    use integration::pod::service_variables;
    use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
    use kube::api::ObjectMeta;
    use proptest::prelude::*;

    use super::*;

    /// Names of Services, among them those that contain words of the variables' names.
    fn name() -> impl Strategy<Value = String> {
        prop_oneof![
            4 => "tenant-broker(-[a-z0-9]{1,6}){0,3}",
            1 => prop::sample::select(vec![
                "tenant-broker",
                "tenant-broker-operator",
                "tenant-broker-port",
                "tenant-broker-service",
                "tenant-broker-service-port",
                "tenant-broker-port-80-tcp",
                "tenant-broker-port-80-tcp-addr",
            ])
            .prop_map(str::to_owned),
        ]
    }

    fn port() -> impl Strategy<Value = ServicePort> {
        (
            proptest::option::of("[a-z][a-z0-9]{0,5}(-[a-z0-9]{1,6})?"),
            1..=65_535_i32,
            proptest::option::of(prop::sample::select(PROTOCOLS.to_vec())),
        )
            .prop_map(|(name, port, protocol)| ServicePort {
                name,
                port,
                protocol: protocol.map(str::to_owned),
                ..ServicePort::default()
            })
    }

    fn service() -> impl Strategy<Value = Service> {
        (name(), any::<IpAddr>(), proptest::collection::vec(port(), 1..4)).prop_map(
            |(name, address, ports)| Service {
                metadata: ObjectMeta { name: Some(name), ..ObjectMeta::default() },
                spec: Some(ServiceSpec {
                    cluster_ip: Some(address.to_string()),
                    ports: Some(ports),
                    ..ServiceSpec::default()
                }),
                status: None,
            },
        )
    }

    /// The variables of a Service without the prefix.
    fn variables(service: &Service) -> Vec<(String, String)> {
        let rest = |name: &str| name.strip_prefix("TENANT_BROKER_").unwrap().to_owned();
        service_variables(service).iter().map(|(name, value)| (rest(name), value.clone())).collect()
    }

    proptest! {
        #[test]
        fn every_variable_of_a_kubelet_is_recognised(service in service()) {
            for (rest, value) in variables(&service) {
                prop_assert!(is_service_variable(&rest, &value), "{rest}={value}");
            }
        }

        #[test]
        fn no_name_is_recognised_with_a_value_of_another_form(service in service()) {
            let values = ["", "true", "0.0.0.0:8443", "http://10.0.0.7:80", "TCP", "tcp://x:1"];
            for (rest, _) in variables(&service) {
                for value in values {
                    prop_assert!(!is_service_variable(&rest, value), "{rest}={value}");
                }
            }
        }

        #[test]
        fn a_key_of_a_table_is_never_recognised(
            table in "[A-Z]{1,8}", service in service(), value in ".*"
        ) {
            for (rest, own) in variables(&service) {
                let rest = format!("{table}__{rest}");
                prop_assert!(!is_service_variable(&rest, &own), "{rest}={own}");
                prop_assert!(!is_service_variable(&rest, &value), "{rest}={value}");
            }
        }
    }

    #[test]
    fn values_must_agree_with_the_name() {
        for (rest, value) in [
            ("PORT", "8080"),
            ("PORT_8443_TCP", "tcp://10.0.0.7:8444"),
            ("PORT_8443_TCP", "udp://10.0.0.7:8443"),
            ("PORT_8443_TCP", "TCP://10.0.0.7:8443"),
            ("PORT_8443_TCP_PROTO", "udp"),
            ("PORT_8443_TCP_PORT", "8444"),
            ("PORT_8443_TCP_ADDR", "broker.example.com"),
            ("PORT_8443_QUIC", "quic://10.0.0.7:8443"),
            ("PORT_70000_TCP_ADDR", "10.0.0.7"),
            ("SERVICE_HOST", "broker.example.com"),
            ("SERVICE_PORT", "70000"),
            ("SERVICE_PORTS", "8080"),
            ("service_port", "8080"),
            ("OPERATOR_LISTN", "10.0.0.7"),
        ] {
            assert!(!is_service_variable(rest, value), "{rest}={value}");
        }
    }
}
