//! The one list of settings: parsing, unknown-key faults and `docs/configuration.md` come from it.

/// Every key that is not part of a tier, with its default and what it means.
pub const KEYS: &[(&str, &str, &str)] = &[
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
    ("drain_seconds", "20", "How long requests under way may take after SIGTERM."),
    ("sweep_seconds", "10", "How often unfinished work is looked for."),
    (
        "trusted_proxies",
        "",
        "Addresses and networks (CIDR) of proxies whose X-Forwarded-For is believed; from anybody else it is ignored.",
    ),
    (
        "drift_seconds",
        "60",
        "How often the objects of all workspaces are compared with what they have to be.",
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
        "Who the broker is to the API server: a user, such as its certificate's common name, or system:serviceaccount:NAMESPACE:NAME. The admission policies fence this name in.",
    ),
    (
        "cluster.audiences",
        "https://kubernetes.default.svc",
        "Audiences of the API server (its --api-audiences, or its issuer); the broker may ask for no other tokens.",
    ),
    (
        "cluster.allow_missing_policies",
        "false",
        "Whether the broker starts where the admission policies of tenant-broker install are missing or changed. A stolen credential of it may then reach the whole cluster, and tenants may make tokens that never end.",
    ),
    (
        "cluster.bind_tokens_to_secrets",
        "false",
        "Whether every token is bound to an empty Secret of its own, so that it can be revoked without the workspace's others. It takes one right more, to create and delete Secrets (never to read them), which tenant-broker install gives and fences in.",
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
        "Failed sign-ins per account in an hour, from everywhere; browsers that signed in before are not concerned.",
    ),
    (
        "limits.sign_ins_begun_per_address",
        "600",
        "Sign-ins begun per address in five minutes, finished or not.",
    ),
    (
        "limits.device_codes_per_address",
        "60",
        "Device codes asked for per address in five minutes.",
    ),
    (
        "limits.user_code_failures_per_address",
        "20",
        "Wrong user codes per address in five minutes.",
    ),
    ("limits.registrations_per_address", "10", "Accounts made by people per address in an hour."),
    (
        "limits.exchanges_per_address",
        "600",
        "Token exchanges of machines per address in five minutes, good or bad.",
    ),
    (
        "limits.unauthenticated_per_address",
        "50",
        "Requests a second and address that may use the database although they present no session that was good in the last 15 minutes: steps of a sign-in, token requests, unknown tokens and cookies. Ten seconds' worth may come at once. More are answered 429 before the database. Whoever proves a session does not count. Each replica counts for itself.",
    ),
    (
        "limits.unauthenticated",
        "200",
        "The same for all addresses together. Three seconds' worth may come at once.",
    ),
    (
        "limits.unauthenticated_at_once",
        "64",
        "How many of these requests are under way at once; half of them from one address.",
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
        "Audit rows are deleted after so many days, at the latest a day later; 0 keeps them for ever.",
    ),
    (
        "issuer.signing_key_files",
        "<state_dir>/issuer-key.pem",
        "PEM files of P-256 keys: the first signs, all are published. With PostgreSQL they must be named, for replicas share them.",
    ),
    (
        "issuer.access_token_seconds",
        "900",
        "Lifetime of the issuer's access tokens (not of Kubernetes tokens, which live 7200 s).",
    ),
    ("issuer.session_idle_seconds", "604800", "A session that is not used for so long ends."),
    (
        "issuer.session_max_seconds",
        "2592000",
        "A session ends after so long, however often it is used.",
    ),
    (
        "issuer.local_accounts",
        "true",
        "Whether people may sign in with e-mail address and password; false needs a connector.",
    ),
    (
        "issuer.refresh_grace_seconds",
        "30",
        "How long a used refresh token may be used again, after a lost answer or by two processes that race, as long as none of its successors was used.",
    ),
    ("issuer.registration", "false", "Whether people may make accounts for themselves."),
    (
        "gateway.own_answers",
        "true",
        "Whether the gateway answers a tenant's `get namespaces` and self-reviews for the namespace that is theirs. false passes them on as they are, for clusters whose tenants may list namespaces.",
    ),
    (
        "frontends.origins",
        "",
        "Origins of frontends that may act with a browser's session, for example https://app.example.com; on the broker's own site, for browsers send its cookie nowhere else.",
    ),
    (
        "frontends.session_idle_seconds",
        "28800",
        "A browser's session that is not used for so long ends.",
    ),
    (
        "frontends.session_max_seconds",
        "604800",
        "A browser's session ends after so long, however often it is used.",
    ),
];
