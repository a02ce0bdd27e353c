-- Who somebody is at a provider. Two people never share one, and nobody is found by their e-mail.
CREATE TABLE identities (
    id BLOB PRIMARY KEY NOT NULL,
    user_id BLOB NOT NULL REFERENCES users (id),
    issuer TEXT NOT NULL,
    subject TEXT NOT NULL,
    username TEXT,
    created_at INTEGER NOT NULL,
    signed_in_at INTEGER NOT NULL,
    UNIQUE (issuer, subject)
);
CREATE INDEX identities_user_id ON identities (user_id);

-- A browser that was sent to a provider and is expected back. The row goes when it comes.
CREATE TABLE upstream_attempts (
    state_hash BLOB PRIMARY KEY NOT NULL,
    authorization_id BLOB NOT NULL,
    connector TEXT NOT NULL,
    expires_at INTEGER NOT NULL
);
CREATE INDEX upstream_attempts_expires_at ON upstream_attempts (expires_at);

-- What a provider gave for one sign-in, and the session that began with it. The refresh token is
-- sealed. One replica at a time asks the provider: the one that holds the lease.
CREATE TABLE upstream_grants (
    id BLOB PRIMARY KEY NOT NULL,
    identity_id BLOB NOT NULL REFERENCES identities (id),
    connector TEXT NOT NULL,
    username TEXT,
    sid TEXT,
    session_id BLOB UNIQUE REFERENCES sessions (id),
    refresh_token BLOB,
    removal_seconds INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    checked_at INTEGER NOT NULL,
    lease_id BLOB,
    lease_until INTEGER
);
CREATE INDEX upstream_grants_identity_id ON upstream_grants (identity_id);

ALTER TABLE authorizations ADD COLUMN upstream_grant_id BLOB;
-- A session of a machine is for one workspace only.
ALTER TABLE sessions ADD COLUMN workspace_id BLOB REFERENCES workspaces (id);
