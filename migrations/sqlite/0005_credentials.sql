-- A ServiceAccount that has to go before anything is issued again: its uid moves here from
-- k8s_sa_uid when a credential of it is revoked, and goes when another one is in its place.
ALTER TABLE workspaces ADD COLUMN retired_sa_uid TEXT;
ALTER TABLE workspaces ADD COLUMN sa_retired_at INTEGER;
CREATE INDEX workspaces_sa_retired_at ON workspaces (sa_retired_at);

-- What a credential is (exec or kubeconfig), who got it, and what it dies with: the ServiceAccount
-- of this uid, and the Secret of this name if it is bound to one.
ALTER TABLE issued_credentials ADD COLUMN kind TEXT NOT NULL DEFAULT 'exec';
ALTER TABLE issued_credentials ADD COLUMN user_id BLOB;
ALTER TABLE issued_credentials ADD COLUMN service_account_uid TEXT;
ALTER TABLE issued_credentials ADD COLUMN secret_name TEXT;
-- When it was revoked, and by the revocation of which credential: its own, or one that it shared a
-- ServiceAccount with.
ALTER TABLE issued_credentials ADD COLUMN revoked_at INTEGER;
ALTER TABLE issued_credentials ADD COLUMN revoked_with TEXT;
UPDATE issued_credentials SET
  user_id = (SELECT w.user_id FROM workspaces w WHERE w.id = issued_credentials.workspace_id),
  service_account_uid =
    (SELECT w.k8s_sa_uid FROM workspaces w WHERE w.id = issued_credentials.workspace_id),
  kind = CASE WHEN EXISTS (SELECT 1 FROM audit_logs a WHERE a.action = 'IssueKubeconfig'
      AND a.workspace_id = issued_credentials.workspace_id
      AND a.credential_id = issued_credentials.credential_id) THEN 'kubeconfig' ELSE 'exec' END
WHERE expires_at > (SELECT COALESCE(MAX(i.issued_at), 0) FROM issued_credentials i);

-- Secrets that tokens are bound to, from before they are made until they are gone. The broker may
-- not look for them in the cluster: what is not in this table it does not find again.
CREATE TABLE credential_secrets (
    name TEXT PRIMARY KEY NOT NULL,
    workspace_id BLOB NOT NULL REFERENCES workspaces (id),
    uid TEXT,
    credential_id TEXT,
    created_at INTEGER NOT NULL,
    delete_at INTEGER NOT NULL
);
CREATE INDEX credential_secrets_workspace_id ON credential_secrets (workspace_id);
CREATE INDEX credential_secrets_delete_at ON credential_secrets (delete_at);
