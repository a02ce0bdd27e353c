-- Who somebody is at a provider. Two people never share one, and nobody is found by their e-mail.
CREATE TABLE identities (
    id UUID PRIMARY KEY,
    user_id UUID NOT NULL REFERENCES users (id),
    issuer TEXT NOT NULL,
    subject TEXT NOT NULL,
    username TEXT,
    created_at BIGINT NOT NULL,
    signed_in_at BIGINT NOT NULL,
    UNIQUE (issuer, subject)
);
CREATE INDEX identities_user_id ON identities (user_id);

-- A browser that was sent to a provider and is expected back. The row goes when it comes.
CREATE TABLE upstream_attempts (
    state_hash BYTEA PRIMARY KEY,
    authorization_id UUID NOT NULL,
    connector TEXT NOT NULL,
    expires_at BIGINT NOT NULL
);
CREATE INDEX upstream_attempts_expires_at ON upstream_attempts (expires_at);

-- What a provider gave for one sign-in, and the session that began with it. The refresh token is
-- sealed. One replica at a time asks the provider: the one that holds the lease.
CREATE TABLE upstream_grants (
    id UUID PRIMARY KEY,
    identity_id UUID NOT NULL REFERENCES identities (id),
    connector TEXT NOT NULL,
    username TEXT,
    sid TEXT,
    session_id UUID UNIQUE REFERENCES sessions (id),
    refresh_token BYTEA,
    removal_seconds BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    checked_at BIGINT NOT NULL,
    lease_id UUID,
    lease_until BIGINT
);
CREATE INDEX upstream_grants_identity_id ON upstream_grants (identity_id);

ALTER TABLE authorizations ADD COLUMN upstream_grant_id UUID;
-- A session of a machine is for one workspace only.
ALTER TABLE sessions ADD COLUMN workspace_id UUID REFERENCES workspaces (id);
