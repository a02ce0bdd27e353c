-- Times are milliseconds since 1970 (UTC), so that SQL never asks for the time.
-- Secrets are kept as SHA-256 (32 bytes); passwords as argon2id in PHC format.

CREATE TABLE users (
    id BLOB PRIMARY KEY NOT NULL,
    email TEXT NOT NULL UNIQUE,
    password_hash TEXT,
    status TEXT NOT NULL,
    role TEXT NOT NULL,
    created_at INTEGER NOT NULL
);

CREATE TABLE workspaces (
    id BLOB PRIMARY KEY NOT NULL,
    user_id BLOB NOT NULL REFERENCES users (id),
    cluster TEXT NOT NULL,
    k8s_namespace TEXT NOT NULL UNIQUE,
    k8s_sa_name TEXT NOT NULL,
    k8s_sa_uid TEXT,
    tier TEXT NOT NULL,
    quota_cpu TEXT NOT NULL,
    quota_memory TEXT NOT NULL,
    status TEXT NOT NULL,
    status_changed_at INTEGER NOT NULL,
    created_at INTEGER NOT NULL
);
CREATE INDEX workspaces_user_id ON workspaces (user_id);
CREATE INDEX workspaces_status ON workspaces (status);

CREATE TABLE sessions (
    id BLOB PRIMARY KEY NOT NULL,
    user_id BLOB NOT NULL REFERENCES users (id),
    client_id TEXT NOT NULL,
    scope TEXT NOT NULL,
    ip_address TEXT,
    user_agent TEXT,
    auth_time INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    last_used_at INTEGER NOT NULL,
    idle_expires_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    ended_at INTEGER,
    ended_why TEXT
);
CREATE INDEX sessions_user_id ON sessions (user_id);

CREATE TABLE access_tokens (
    token_hash BLOB PRIMARY KEY NOT NULL,
    session_id BLOB NOT NULL REFERENCES sessions (id),
    expires_at INTEGER NOT NULL
);
CREATE INDEX access_tokens_expires_at ON access_tokens (expires_at);

CREATE TABLE refresh_tokens (
    token_hash BLOB PRIMARY KEY NOT NULL,
    session_id BLOB NOT NULL REFERENCES sessions (id),
    issued_at INTEGER NOT NULL,
    used_at INTEGER
);
CREATE INDEX refresh_tokens_session_id ON refresh_tokens (session_id);

-- One row from the authorization request to the redeemed code.
CREATE TABLE authorizations (
    id BLOB PRIMARY KEY NOT NULL,
    request_hash BLOB NOT NULL UNIQUE,
    browser_hash BLOB NOT NULL,
    client_id TEXT NOT NULL,
    redirect_uri TEXT NOT NULL,
    scope TEXT NOT NULL,
    state TEXT,
    nonce TEXT,
    code_challenge TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    user_id BLOB REFERENCES users (id),
    code_hash BLOB UNIQUE,
    code_expires_at INTEGER,
    authenticated_at INTEGER,
    redeemed_at INTEGER,
    session_id BLOB REFERENCES sessions (id)
);
CREATE INDEX authorizations_expires_at ON authorizations (expires_at);

-- The ledger: which credential left, never the credential.
CREATE TABLE issued_credentials (
    credential_id TEXT PRIMARY KEY NOT NULL,
    workspace_id BLOB NOT NULL REFERENCES workspaces (id),
    session_id BLOB NOT NULL,
    issued_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
);
CREATE INDEX issued_credentials_workspace_id ON issued_credentials (workspace_id, issued_at);

CREATE TABLE audit_logs (
    id BLOB PRIMARY KEY NOT NULL,
    user_id BLOB,
    workspace_id BLOB,
    action TEXT NOT NULL,
    ip_address TEXT,
    created_at INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    session_id BLOB,
    credential_id TEXT,
    request_id TEXT,
    reason TEXT
);
CREATE INDEX audit_logs_workspace_id ON audit_logs (workspace_id, id);
CREATE INDEX audit_logs_user_id ON audit_logs (user_id, id);

CREATE TABLE throttles (
    name TEXT NOT NULL,
    subject TEXT NOT NULL,
    window_start INTEGER NOT NULL,
    used INTEGER NOT NULL,
    PRIMARY KEY (name, subject)
);
