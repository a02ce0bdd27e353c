-- What a module publishes of its tables for statements of other modules. Only the module that owns a
-- table names the table itself; a test of the layers checks that (migrations/README.md).

-- Users: the current address, and how often a user was suspended, for those who may sign in.
CREATE VIEW user_emails AS
SELECT id AS user_id, email FROM users;
CREATE VIEW active_users AS
SELECT id AS user_id, suspensions FROM users WHERE status = 'active';

-- Sessions with their times, and the upstream identities of users.
CREATE VIEW user_sessions AS
SELECT id AS session_id, user_id, client_id, user_agent, ip_address, created_at, last_used_at,
  idle_expires_at, expires_at, ended_at, ended_why
FROM sessions;
CREATE VIEW upstream_identities AS
SELECT id AS identity_id, user_id, issuer, subject FROM identities;

-- Rows of the issuer that refer to a session, and the provider at which a session signed in.
CREATE VIEW session_references AS
SELECT session_id FROM refresh_tokens
UNION ALL
SELECT session_id FROM authorizations WHERE session_id IS NOT NULL;
CREATE VIEW session_providers AS
SELECT session_id, connector, username, removal_seconds
FROM upstream_grants WHERE session_id IS NOT NULL;

-- Workspaces: who is a member of which one, and the ServiceAccounts that tokens are issued for.
CREATE VIEW workspace_members AS
SELECT id AS workspace_id, user_id, cluster, k8s_namespace AS namespace FROM workspaces;
CREATE VIEW active_service_accounts AS
SELECT id AS workspace_id, k8s_sa_uid AS uid
FROM workspaces WHERE status = 'provisioned' AND k8s_sa_uid IS NOT NULL;

-- Times of the changes that close streams in the gateway.
CREATE VIEW workspace_changes AS
SELECT id AS workspace_id, status_changed_at AS changed_at FROM workspaces;
CREATE VIEW session_ends AS
SELECT id AS session_id, ended_at FROM sessions WHERE ended_at IS NOT NULL;
CREATE VIEW credential_revocations AS
SELECT credential_id, workspace_id, revoked_at
FROM issued_credentials WHERE revoked_at IS NOT NULL;
