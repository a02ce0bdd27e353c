-- Times are milliseconds since 1970 (UTC), so that SQL never asks for the time.
-- Secrets are kept as SHA-256 (32 bytes); passwords as argon2id in PHC format.

CREATE TABLE users (
    id UUID PRIMARY KEY,
    email TEXT NOT NULL UNIQUE,
    password_hash TEXT,
    status TEXT NOT NULL,
    role TEXT NOT NULL,
    created_at BIGINT NOT NULL
);

CREATE TABLE workspaces (
    id UUID PRIMARY KEY,
    user_id UUID NOT NULL REFERENCES users (id),
    cluster TEXT NOT NULL,
    k8s_namespace TEXT NOT NULL UNIQUE,
    k8s_sa_name TEXT NOT NULL,
    k8s_sa_uid TEXT,
    tier TEXT NOT NULL,
    quota_cpu TEXT NOT NULL,
    quota_memory TEXT NOT NULL,
    status TEXT NOT NULL,
    status_changed_at BIGINT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX workspaces_user_id ON workspaces (user_id);
CREATE INDEX workspaces_status ON workspaces (status);

CREATE TABLE sessions (
    id UUID PRIMARY KEY,
    user_id UUID NOT NULL REFERENCES users (id),
    client_id TEXT NOT NULL,
    scope TEXT NOT NULL,
    ip_address TEXT,
    user_agent TEXT,
    auth_time BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    last_used_at BIGINT NOT NULL,
    idle_expires_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    ended_at BIGINT,
    ended_why TEXT
);
CREATE INDEX sessions_user_id ON sessions (user_id);

CREATE TABLE access_tokens (
    token_hash BYTEA PRIMARY KEY,
    session_id UUID NOT NULL REFERENCES sessions (id),
    expires_at BIGINT NOT NULL
);
CREATE INDEX access_tokens_expires_at ON access_tokens (expires_at);

CREATE TABLE refresh_tokens (
    token_hash BYTEA PRIMARY KEY,
    session_id UUID NOT NULL REFERENCES sessions (id),
    issued_at BIGINT NOT NULL,
    used_at BIGINT
);
CREATE INDEX refresh_tokens_session_id ON refresh_tokens (session_id);

-- One row from the authorization request to the redeemed code.
CREATE TABLE authorizations (
    id UUID PRIMARY KEY,
    request_hash BYTEA NOT NULL UNIQUE,
    browser_hash BYTEA NOT NULL,
    client_id TEXT NOT NULL,
    redirect_uri TEXT NOT NULL,
    scope TEXT NOT NULL,
    state TEXT,
    nonce TEXT,
    code_challenge TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    user_id UUID REFERENCES users (id),
    code_hash BYTEA UNIQUE,
    code_expires_at BIGINT,
    authenticated_at BIGINT,
    redeemed_at BIGINT,
    session_id UUID REFERENCES sessions (id)
);
CREATE INDEX authorizations_expires_at ON authorizations (expires_at);

-- The ledger: which credential left, never the credential.
CREATE TABLE issued_credentials (
    credential_id TEXT PRIMARY KEY,
    workspace_id UUID NOT NULL REFERENCES workspaces (id),
    session_id UUID NOT NULL,
    issued_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX issued_credentials_workspace_id ON issued_credentials (workspace_id, issued_at);

CREATE TABLE audit_logs (
    id UUID PRIMARY KEY,
    user_id UUID,
    workspace_id UUID,
    action TEXT NOT NULL,
    ip_address TEXT,
    created_at BIGINT NOT NULL,
    outcome TEXT NOT NULL,
    session_id UUID,
    credential_id TEXT,
    request_id TEXT,
    reason TEXT
);
CREATE INDEX audit_logs_workspace_id ON audit_logs (workspace_id, id);
CREATE INDEX audit_logs_user_id ON audit_logs (user_id, id);

CREATE TABLE throttles (
    name TEXT NOT NULL,
    subject TEXT NOT NULL,
    window_start BIGINT NOT NULL,
    used BIGINT NOT NULL,
    PRIMARY KEY (name, subject)
);
