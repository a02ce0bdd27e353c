//! The modules of the broker in the order of their layers, and the owners of tables.

/// The modules, lowest layer first, with their responsibility. A module uses modules before it.
pub(crate) const LAYERS: &[(&str, &str)] = &[
    (
        "base",
        "time, randomness, secrets, files that change, database, signing, rate limits, logs and metrics; nothing of the domain",
    ),
    ("tier", "resource limits, role and network rules of workspaces"),
    (
        "cluster",
        "Kubernetes API servers, accessed as the broker; pooled connections for requests with a tenant's token",
    ),
    ("audit", "audit trail: record, chain, verify, prune, read and export"),
    ("identity", "users, passwords, sessions and access tokens: authentication"),
    ("access", "authorization: decides on an action and returns a `Permit`"),
    (
        "tenant",
        "definition of the kind `Tenant`, validation of its objects, desired state of a tenant, rows of tenants and namespaces",
    ),
    ("workspace", "life cycle of workspaces: init, suspend, resume, sweep, drift"),
    ("credential", "two-hour tokens: issue, record, list, revoke"),
    (
        "tenant_controller",
        "controller of Tenants: watches, reconciles their objects and writes their status",
    ),
    (
        "tenant_operations",
        "operations on tenants that people request: membership, namespaces, suspension, writes of Tenants",
    ),
    ("user", "management of users by administrators"),
    ("tier_role", "permissions that the tiers' ClusterRoles really grant"),
    ("install", "the broker's ClusterRole and the admission policies: manifest, apply, verify"),
    ("doctor", "diagnostics of the cluster"),
    ("http", "outer HTTP stack, error responses, CORS, access log, extractors, pages"),
    ("server", "listener, TLS, connections, graceful shutdown"),
    ("issuer", "OpenID provider: sign-in pages, OAuth endpoints, connectors, token exchange"),
    (
        "gateway",
        "Kubernetes proxy: forwards requests with the tenant's token, and cancels them on revocation",
    ),
    (
        "model_services",
        "namespaces, models of KServe and Llama Stack distributions, with the caller's own rights",
    ),
    ("account", "account page in the browser"),
    ("backup", "backup and restore of the database with the signing keys"),
    ("config", "settings: sources, validation, reference"),
    ("app", "composition root, background tasks, endpoints for operators"),
    ("cli", "commands"),
];

/// Modules that do not know HTTP outside of their `api`.
pub(crate) const DOMAIN: &[&str] = &[
    "base",
    "tier",
    "cluster",
    "audit",
    "identity",
    "access",
    "tenant",
    "workspace",
    "credential",
    "tenant_controller",
    "tenant_operations",
    "user",
    "tier_role",
    "install",
    "doctor",
    "backup",
];

/// Submodules that a facade exports under their own name.
pub(crate) const EXPORTED_SUBMODULES: &[(&str, &str)] = &[
    ("audit", "chain"),
    ("http", "body"),
    ("http", "page"),
    ("http", "query"),
    ("identity", "sessions"),
    ("identity", "users"),
    ("issuer", "connector"),
    ("issuer", "keys"),
    ("issuer", "token_exchange"),
];

/// Functions that make proofs of an authority without a permit, and the files or folders that may
/// name them.
pub(crate) const AUTHORITY: &[(&str, &[&str])] = &[
    ("for_administrator", &["audit/trail.rs", "access/"]),
    ("about_user", &["audit/trail.rs", "access/"]),
    ("for_operator", &["audit/trail.rs", "cli/"]),
];

/// The tables and the modules that own them. Other modules read views of the owner.
pub(crate) const TABLES: &[(&str, &str)] = &[
    ("throttles", "base"),
    ("schema_compatibility", "base"),
    ("leases", "base"),
    ("audit_logs", "audit"),
    ("audit_chain", "audit"),
    ("audit_checkpoints", "audit"),
    ("users", "identity"),
    ("sessions", "identity"),
    ("access_tokens", "identity"),
    ("identities", "identity"),
    ("tenants", "tenant"),
    ("tenant_namespaces", "tenant"),
    ("namespace_moves", "tenant"),
    ("tenant_deleted_bindings", "tenant"),
    ("workspaces", "workspace"),
    ("drifts", "workspace"),
    ("issued_credentials", "credential"),
    ("credential_secrets", "credential"),
    ("authorizations", "issuer"),
    ("refresh_tokens", "issuer"),
    ("device_authorizations", "issuer"),
    ("known_browsers", "issuer"),
    ("upstream_attempts", "issuer"),
    ("upstream_grants", "issuer"),
    ("gateway_usage", "gateway"),
];
