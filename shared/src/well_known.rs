//! Well-known names that the broker, the plugin and the cluster's objects share.

use uuid::Uuid;

/// Cluster name in every kubeconfig, and the default name of the one configured cluster.
pub const CLUSTER_NAME: &str = "internal-cluster";
/// Path prefix of the broker's gateway; the name of the cluster follows.
pub const GATEWAY_PATH: &str = "/clusters/";
/// OAuth 2.0 scope of an access token that is valid for the gateway only.
pub const GATEWAY_SCOPE: &str = "gateway";
/// Context name in every kubeconfig.
pub const CONTEXT_NAME: &str = "tenant-context";
/// Name of the ServiceAccount whose tokens a tenant gets; also the user name in every kubeconfig.
pub const SERVICE_ACCOUNT_NAME: &str = "sa-tenant-admin";
/// Name of the RoleBinding that grants [`SERVICE_ACCOUNT_NAME`] its role in its own namespace.
pub const ROLE_BINDING_NAME: &str = "rb-tenant-admin";
/// Label that tells people and tools who created an object, with the value [`MANAGED_BY_VALUE`].
/// The broker decides nothing by it, because Helm and other tools overwrite it.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
/// Value of [`MANAGED_BY_LABEL`].
pub const MANAGED_BY_VALUE: &str = "tenant-broker";
/// Label with the UUID of the workspace that an object belongs to. On a namespace the admission
/// policies select by it: no other tool writes it, and only the broker and administrators of the
/// policies may.
pub const WORKSPACE_LABEL: &str = "tenant-broker.io/workspace";
/// Label with the name of the tenant that an object belongs to: on its home, on its namespaces, and
/// on the objects that the broker makes in them. The namespace of a personal workspace does not
/// have it, and those of tenants do not have [`WORKSPACE_LABEL`].
pub const TENANT_LABEL: &str = "tenant-broker.io/tenant";
/// Label with the uid of the Tenant that an administrator gave a namespace to. Only administrators of
/// the policies write it, so it shows that one of them moved the namespace into that tenant.
pub const TENANT_UID_LABEL: &str = "tenant-broker.io/tenant-uid";
/// Label with the name of the tenant that a namespace belonged to until the Tenant was deleted.
pub const FORMER_TENANT_LABEL: &str = "tenant-broker.io/former-tenant";
/// Label with the value `"true"` on the home of a tenant, the namespace `tenant-NAME`.
pub const HOME_LABEL: &str = "tenant-broker.io/home";
/// Label with the value `"any"` on the namespaces of a tenant whose owners may bind users and groups
/// themselves (`spec.bindings: Any`).
pub const BINDINGS_LABEL: &str = "tenant-broker.io/bindings";
/// Label on a namespace with the tier of its workspace or of its tenant.
pub const TIER_LABEL: &str = "tenant-broker.io/tier";
/// Label on a namespace while its workspace or its tenant is suspended. The broker writes `"true"`;
/// any value counts.
pub const SUSPENDED_LABEL: &str = "tenant-broker.io/suspended";
/// Prefix of the keys of all labels of the broker.
pub const LABEL_PREFIX: &str = "tenant-broker.io/";
/// ClusterRole that makes its subjects owners of a tenant, where it is bound in the tenant's home:
/// verb `own` on `tenants.tenant-broker.io`.
pub const TENANT_OWNER_ROLE: &str = "tenant-owner";
/// ClusterRole that allows its subjects to delete the namespace in which it is bound.
pub const NAMESPACE_DELETER_ROLE: &str = "tenant-namespace-deleter";
/// Capsule's name of that ClusterRole, in Tenants that were written for Capsule.
pub const CAPSULE_NAMESPACE_DELETER_ROLE: &str = "capsule-namespace-deleter";
/// Name prefix of the ServiceAccounts of members in the home of a tenant; the member's user uuid
/// follows.
pub const MEMBER_PREFIX: &str = "member-";
/// Prefix of the namespaces that the broker makes, and of the names of all objects that it makes for a
/// tenant.
pub const NAME_PREFIX: &str = "tenant-";
/// Name prefix of the Secrets that tokens are bound to.
pub const TOKEN_SECRET_PREFIX: &str = "tenant-credential-";
/// Name of the kubeconfig extension that marks the plugin's own entries; it holds `broker` and
/// `workspace`.
pub const EXTENSION_NAME: &str = "tenant-broker.io";
/// OAuth 2.0 client id of the plugin at the embedded issuer: a public client (RFC 6749 section 2.1).
pub const PLUGIN_CLIENT_ID: &str = "kubectl-tenant";
/// Client id under which the sessions of a browser are listed, which has a cookie and no tokens.
pub const BROWSER_CLIENT_ID: &str = "browser";
/// File name of the plugin. Kubeconfigs contain it without a path, so that `PATH` and kubectl's
/// plugin allow-lists decide which file it is.
pub const PLUGIN_COMMAND: &str = "kubectl-tenant";
/// Environment variable with the broker's URL.
pub const BROKER_ENV: &str = "TENANT_BROKER_URL";

/// Namespace of a user: `tenant-<user uuid>`, lower case, 43 characters, a DNS label.
pub fn tenant_namespace(user_id: Uuid) -> String {
    format!("{NAME_PREFIX}{}", user_id.hyphenated())
}

/// Whether a namespace has the name of a user's: [`tenant_namespace`].
pub fn is_tenant_namespace(namespace: &str) -> bool {
    namespace.strip_prefix(NAME_PREFIX).is_some_and(|id| Uuid::try_parse(id).is_ok())
}
