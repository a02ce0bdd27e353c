-- The personal tenants of all workspaces. No user has two workspaces, because their namespaces are
-- named after the user.
INSERT INTO tenants (id, created_at)
SELECT user_id, created_at FROM workspaces WHERE tenant_id IS NULL
ON CONFLICT (id) DO NOTHING;
UPDATE workspaces SET tenant_id = user_id WHERE tenant_id IS NULL;
-- It takes the place of the UNIQUE of k8s_namespace, which goes once no broker needs it that does not
-- know this index.
CREATE UNIQUE INDEX workspaces_tenant_id_user_id ON workspaces (tenant_id, user_id);

UPDATE schema_compatibility SET oldest_program = 14;
