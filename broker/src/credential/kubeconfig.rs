//! Kubeconfig documents for users. No I/O.

use secrecy::{ExposeSecret as _, SecretString};
use serde::Serialize;
use tenant_shared::{
    CLUSTER_NAME, CONTEXT_NAME, ExecApiVersion, PLUGIN_COMMAND, SERVICE_ACCOUNT_NAME,
};
use uuid::Uuid;

use crate::cluster::Endpoint;

/// The variable parts of a kubeconfig.
#[derive(Debug)]
pub struct Parts<'a> {
    /// Address and CA of the API server or the gateway.
    pub endpoint: &'a Endpoint,
    /// The default namespace of the context.
    pub namespace: &'a str,
    pub user: TokenSource<'a>,
}

/// The source of the token in a kubeconfig.
#[derive(Debug)]
pub enum TokenSource<'a> {
    /// The document contains this token.
    Token(&'a SecretString),
    /// The exec plugin requests it from this broker.
    Exec {
        /// URL of the broker.
        broker: &'a str,
        /// Identifier of the workspace.
        workspace: Uuid,
        /// Whether the token is used with the gateway.
        gateway: bool,
    },
}

// The order of the fields is the order of the specification's document.

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Document<'a> {
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    clusters: [Named<'a, ClusterEntry<'a>>; 1],
    contexts: [Named<'a, ContextEntry<'a>>; 1],
    current_context: &'static str,
    kind: &'static str,
    users: [Named<'a, UserEntry<'a>>; 1],
}

#[derive(Serialize)]
struct Named<'a, T> {
    #[serde(flatten)]
    entry: T,
    name: &'a str,
}

#[derive(Serialize)]
struct ClusterEntry<'a> {
    cluster: ClusterFields<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct ClusterFields<'a> {
    server: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate_authority_data: Option<&'a str>,
}

#[derive(Serialize)]
struct ContextEntry<'a> {
    context: ContextFields<'a>,
}

#[derive(Serialize)]
struct ContextFields<'a> {
    cluster: &'a str,
    namespace: &'a str,
    user: &'a str,
}

#[derive(Serialize)]
struct UserEntry<'a> {
    user: UserFields<'a>,
}

#[derive(Default, Serialize)]
struct UserFields<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exec: Option<Exec>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Exec {
    api_version: &'static str,
    command: &'static str,
    args: Vec<String>,
    interactive_mode: &'static str,
    provide_cluster_info: bool,
    install_hint: &'static str,
}

/// Hint that kubectl prints when the plugin is not installed.
const INSTALL_HINT: &str = "kubectl-tenant is not on your PATH. Build it with \
`cargo install --path kubectl-tenant` from the project's source, or ask your platform team.";

/// Renders a kubeconfig: the specification's document, with a token or with an exec entry.
///
/// # Errors
/// The serializer failed, which is not expected.
pub fn render(parts: &Parts<'_>) -> Result<SecretString, serde_norway::Error> {
    let user = match &parts.user {
        TokenSource::Token(token) => {
            UserFields { token: Some(token.expose_secret()), ..UserFields::default() }
        }
        TokenSource::Exec { broker, workspace, gateway } => UserFields {
            exec: Some(Exec {
                api_version: ExecApiVersion::V1.as_str(),
                command: PLUGIN_COMMAND,
                // Cluster and workspace are in the arguments, because client-go shares the
                // credential of equal entries.
                args: [
                    "get-token".to_owned(),
                    format!("--broker={broker}"),
                    format!("--cluster={CLUSTER_NAME}"),
                    format!("--workspace={workspace}"),
                ]
                .into_iter()
                .chain(gateway.then(|| "--mode=gateway".to_owned()))
                .collect(),
                interactive_mode: "IfAvailable",
                provide_cluster_info: false,
                install_hint: INSTALL_HINT,
            }),
            ..UserFields::default()
        },
    };
    let cluster = ClusterEntry {
        cluster: ClusterFields {
            server: &parts.endpoint.server,
            certificate_authority_data: parts.endpoint.certificate_authority_data.as_deref(),
        },
    };
    let context = ContextEntry {
        context: ContextFields {
            cluster: CLUSTER_NAME,
            namespace: parts.namespace,
            user: SERVICE_ACCOUNT_NAME,
        },
    };
    let document = Document {
        api_version: "v1",
        clusters: [Named { entry: cluster, name: CLUSTER_NAME }],
        contexts: [Named { entry: context, name: CONTEXT_NAME }],
        current_context: CONTEXT_NAME,
        kind: "Config",
        users: [Named { entry: UserEntry { user }, name: SERVICE_ACCOUNT_NAME }],
    };
    serde_norway::to_string(&document).map(SecretString::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint() -> Endpoint {
        Endpoint {
            server: "https://k8s.example:6443".into(),
            certificate_authority_data: Some("Q0E=".into()),
        }
    }

    #[test]
    fn the_static_document_matches_the_specification() {
        let token = SecretString::from("eyJ");
        let parts = Parts {
            endpoint: &endpoint(),
            namespace: "tenant-a1b2c3d4",
            user: TokenSource::Token(&token),
        };
        insta::assert_snapshot!(render(&parts).unwrap().expose_secret(), @r"
        apiVersion: v1
        clusters:
        - cluster:
            server: https://k8s.example:6443
            certificate-authority-data: Q0E=
          name: internal-cluster
        contexts:
        - context:
            cluster: internal-cluster
            namespace: tenant-a1b2c3d4
            user: sa-tenant-admin
          name: tenant-context
        current-context: tenant-context
        kind: Config
        users:
        - user:
            token: eyJ
          name: sa-tenant-admin
        ");
    }

    #[test]
    fn the_exec_document_names_the_plugin_without_a_path() {
        let parts = Parts {
            endpoint: &endpoint(),
            namespace: "tenant-a1b2c3d4",
            user: TokenSource::Exec {
                broker: "https://broker.example",
                workspace: Uuid::nil(),
                gateway: false,
            },
        };
        insta::assert_snapshot!(render(&parts).unwrap().expose_secret(), @r"
        apiVersion: v1
        clusters:
        - cluster:
            server: https://k8s.example:6443
            certificate-authority-data: Q0E=
          name: internal-cluster
        contexts:
        - context:
            cluster: internal-cluster
            namespace: tenant-a1b2c3d4
            user: sa-tenant-admin
          name: tenant-context
        current-context: tenant-context
        kind: Config
        users:
        - user:
            exec:
              apiVersion: client.authentication.k8s.io/v1
              command: kubectl-tenant
              args:
              - get-token
              - --broker=https://broker.example
              - --cluster=internal-cluster
              - --workspace=00000000-0000-0000-0000-000000000000
              interactiveMode: IfAvailable
              provideClusterInfo: false
              installHint: kubectl-tenant is not on your PATH. Build it with `cargo install --path kubectl-tenant` from the project's source, or ask your platform team.
          name: sa-tenant-admin
        ");
    }
}
