//! Names that several parts must agree on.

use uuid::Uuid;

/// Cluster name in every kubeconfig, and the default name of the one configured cluster.
pub const CLUSTER_NAME: &str = "internal-cluster";
/// What every path of the broker's gateway begins with; the name of the cluster follows.
pub const GATEWAY_PATH: &str = "/clusters/";
/// Scope of an access token that is good for the gateway and nothing else.
pub const GATEWAY_SCOPE: &str = "gateway";
/// Context name in every kubeconfig.
pub const CONTEXT_NAME: &str = "tenant-context";
/// The ServiceAccount whose tokens a tenant gets; also the user name in every kubeconfig.
pub const SERVICE_ACCOUNT_NAME: &str = "sa-tenant-admin";
/// The RoleBinding that gives [`SERVICE_ACCOUNT_NAME`] its role in its own namespace.
pub const ROLE_BINDING_NAME: &str = "rb-tenant-admin";
/// Label that tells people and tools who made an object, with [`MANAGED_BY_VALUE`]. Helm and other tools
/// overwrite it, so nothing is decided by it.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
/// Value of [`MANAGED_BY_LABEL`].
pub const MANAGED_BY_VALUE: &str = "tenant-broker";
/// Label that names the workspace (its UUID) that an object belongs to. On a namespace it is what the
/// admission policies select by: no other tool writes it, and nobody but the broker and administrators
/// of the policies may.
pub const WORKSPACE_LABEL: &str = "tenant-broker.io/workspace";
/// Label on a namespace that names the tier of its workspace.
pub const TIER_LABEL: &str = "tenant-broker.io/tier";
/// Label on a namespace while its workspace is suspended. The broker writes `"true"`; any value counts.
pub const SUSPENDED_LABEL: &str = "tenant-broker.io/suspended";
/// What the keys of all labels of ours begin with.
pub const LABEL_PREFIX: &str = "tenant-broker.io/";
/// What the names of Secrets begin with that tokens are bound to.
pub const TOKEN_SECRET_PREFIX: &str = "tenant-credential-";
/// Name of the kubeconfig extension that marks entries as ours; it holds `broker` and `workspace`.
pub const EXTENSION_NAME: &str = "tenant-broker.io";
/// OAuth 2.0 client id of the plugin at the embedded issuer: a public client (RFC 6749 section 2.1).
pub const PLUGIN_CLIENT_ID: &str = "kubectl-tenant";
/// What the sessions of a browser, which has a cookie and no tokens, are listed under.
pub const BROWSER_CLIENT_ID: &str = "browser";
/// The plugin's file name. Kubeconfigs name it bare, so that `PATH` and kubectl's plugin
/// allow-lists decide which file it is.
pub const PLUGIN_COMMAND: &str = "kubectl-tenant";
/// Environment variable that names the broker's URL.
pub const BROKER_ENV: &str = "TENANT_BROKER_URL";

/// The namespace of a user: `tenant-<user uuid>`, lower case, 43 characters, a DNS label.
pub fn tenant_namespace(user_id: Uuid) -> String {
    format!("tenant-{}", user_id.hyphenated())
}
