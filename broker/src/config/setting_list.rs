//! The list of settings, with defaults and meanings: the source of defaults and of
//! `docs/configuration.md`.

/// Every setting that is not part of a tier, connector or workload: key, default, meaning.
pub const SETTINGS: &[(&str, &str, &str)] = &[
    ("listen", "127.0.0.1:8080", "Address of the API, the issuer and its pages."),
    (
        "operator_listen",
        "127.0.0.1:8081",
        "Address of /healthz, /readyz and /metrics; keep it private.",
    ),
    (
        "public_url",
        "http://127.0.0.1:8080",
        "URL under which people reach the broker; the issuer of its ID tokens. HTTPS, except on loopback.",
    ),
    (
        "state_dir",
        "/var/lib/tenant-broker",
        "Folder of the SQLite database and of the generated signing key.",
    ),
    ("drain_seconds", "20", "Seconds that requests in flight have to finish after SIGTERM."),
    ("sweep_seconds", "10", "Interval of the sweep, which finishes interrupted work, in seconds."),
    (
        "trusted_proxies",
        "",
        "Addresses and networks (CIDR) of proxies whose X-Forwarded-For is trusted; from all other addresses the header is ignored.",
    ),
    (
        "drift_seconds",
        "60",
        "Interval at which the objects of all workspaces are compared with their desired state, in seconds.",
    ),
    (
        "database.url",
        "sqlite://<state_dir>/broker.db",
        "postgres://user:password@host:5432/name, or sqlite://<file>.",
    ),
    ("database.url_file", "", "File that holds the database URL, instead of database.url."),
    ("tls.cert_file", "", "PEM certificate chain; with tls.key_file the broker serves TLS."),
    ("tls.key_file", "", "PEM private key."),
    ("log.level", "info", "A level, or a filter such as tenant_broker=debug,kube=warn."),
    ("log.format", "text", "text or json."),
    ("cluster.name", "internal-cluster", "Name of the cluster in workspaces and kubeconfigs."),
    (
        "cluster.kubeconfig",
        "",
        "The broker's own restricted credential; empty: the pod's ServiceAccount.",
    ),
    (
        "cluster.server",
        "",
        "API server URL in people's kubeconfigs; empty: as in the broker's credential.",
    ),
    (
        "cluster.ca_file",
        "",
        "PEM CA in people's kubeconfigs; empty: as in the broker's credential.",
    ),
    (
        "cluster.identity",
        "tenant-broker",
        "Who the broker is to the API server: a user, such as its certificate's common name, or system:serviceaccount:NAMESPACE:NAME. The admission policies restrict this user.",
    ),
    (
        "cluster.audiences",
        "https://kubernetes.default.svc",
        "Audiences of the API server (its --api-audiences, or its issuer); the broker may request tokens for no others.",
    ),
    (
        "cluster.allow_missing_policies",
        "false",
        "Whether the broker starts although the admission policies of tenant-broker install are missing or changed. A stolen credential of the broker may then reach the whole cluster, and tenants may create tokens that never expire.",
    ),
    (
        "cluster.bind_tokens_to_secrets",
        "false",
        "Whether every token is bound to an empty Secret of its own, so that it can be revoked without the others of its workspace. This needs the additional permission to create and delete Secrets (never to read them), which tenant-broker install grants and restricts by an admission policy.",
    ),
    ("limits.init_per_hour", "20", "Calls of POST /workspaces/init per user and hour."),
    (
        "limits.sign_in_failures_per_account",
        "10",
        "Failed sign-ins per account in five minutes, counted for each address on its own, and for each browser that signed in before.",
    ),
    (
        "limits.sign_in_failures_per_address",
        "50",
        "Failed sign-ins per address in five minutes; wrong passwords and refused sign-ins at providers are counted apart.",
    ),
    (
        "limits.sign_in_failures_everywhere",
        "100",
        "Failed sign-ins per account in an hour, from all addresses; sign-ins in browsers that signed in before are not limited by it.",
    ),
    (
        "limits.sign_ins_begun_per_address",
        "600",
        "Started sign-ins per address in five minutes, finished or not.",
    ),
    (
        "limits.device_codes_per_address",
        "60",
        "Requested device codes per address in five minutes.",
    ),
    (
        "limits.user_code_failures_per_address",
        "20",
        "Wrong user codes per address in five minutes.",
    ),
    ("limits.registrations_per_address", "10", "Registrations of accounts per address in an hour."),
    (
        "limits.exchanges_per_address",
        "600",
        "Token exchanges of machines per address in five minutes, successful or not.",
    ),
    (
        "limits.unauthenticated_per_address",
        "50",
        "Requests per second and address that may use the database without a session that was valid in the last 15 minutes: steps of a sign-in, token requests, unknown tokens and cookies. The burst is ten seconds' worth. Further requests get 429 before they reach the database. Requests with a valid session do not count. Each replica counts for itself.",
    ),
    (
        "limits.unauthenticated",
        "200",
        "The same for all addresses together. The burst is three seconds' worth.",
    ),
    (
        "limits.unauthenticated_at_once",
        "64",
        "Limit of concurrent requests of this kind; half of it for one address.",
    ),
    (
        "audit.signing_key_files",
        "",
        "PEM files with EC P-256 keys; the first signs the audit trail's checkpoints, all verify them. Empty: the issuer's.",
    ),
    (
        "audit.known_keys_file",
        "",
        "JSON Web Key Set with public keys that signed checkpoints earlier.",
    ),
    (
        "audit.retention_days",
        "0",
        "Days after which audit rows are deleted, at the latest a day later; 0 keeps them for ever.",
    ),
    (
        "issuer.signing_key_files",
        "<state_dir>/issuer-key.pem",
        "PEM files of P-256 keys: the first signs, all are published. With PostgreSQL they must be set, because replicas share them.",
    ),
    (
        "issuer.access_token_seconds",
        "900",
        "Lifetime of the issuer's access tokens (not of Kubernetes tokens, which live 7200 s).",
    ),
    ("issuer.session_idle_seconds", "604800", "Seconds without use after which a session ends."),
    (
        "issuer.session_max_seconds",
        "2592000",
        "Seconds after which a session ends, however often it is used.",
    ),
    (
        "issuer.local_accounts",
        "true",
        "Whether people may sign in with e-mail address and password; false needs a connector.",
    ),
    (
        "issuer.refresh_grace_seconds",
        "30",
        "Seconds in which a used refresh token may be used again, after a lost response or by two concurrent processes, as long as none of its successors was used.",
    ),
    ("issuer.registration", "false", "Whether people may register accounts themselves."),
    (
        "gateway.own_answers",
        "true",
        "Whether the gateway itself answers a tenant's `get namespaces` and self-reviews, for the tenant's own namespace. false forwards them unchanged, for clusters whose tenants may list namespaces.",
    ),
    (
        "frontends.origins",
        "",
        "Origins of frontends that may act with a browser's session, for example https://app.example.com; on the broker's own site, because browsers send its cookie nowhere else.",
    ),
    (
        "frontends.session_idle_seconds",
        "28800",
        "Seconds without use after which a browser's session ends.",
    ),
    (
        "frontends.session_max_seconds",
        "604800",
        "Seconds after which a browser's session ends, however often it is used.",
    ),
];
