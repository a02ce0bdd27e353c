-- Writers of the table wait for this lock, because one that waited for a row only would be in a
-- deadlock with CREATE INDEX. Statements that read the table or insert references to it do not wait.
LOCK TABLE workspaces IN SHARE ROW EXCLUSIVE MODE;

-- The personal tenants of all workspaces. No user has two workspaces, because their namespaces are
-- named after the user. If an init was repeated since 0015, the trigger added the tenant already.
INSERT INTO tenants (id, created_at)
SELECT user_id, created_at FROM workspaces WHERE tenant_id IS NULL
ON CONFLICT (id) DO NOTHING;
UPDATE workspaces SET tenant_id = user_id WHERE tenant_id IS NULL;
-- It takes the place of the UNIQUE of k8s_namespace, which goes once no broker needs it that does not
-- know this index. With the index, the UPDATE would lock the rows against references.
CREATE UNIQUE INDEX workspaces_tenant_id_user_id ON workspaces (tenant_id, user_id);

UPDATE schema_compatibility SET oldest_program = 14;
