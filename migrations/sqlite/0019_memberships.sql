-- Memberships in tenants that have a name. The members of a tenant share its home, whose name is in
-- home_namespace. k8s_namespace stays unique, because brokers that know schema 14 insert with
-- ON CONFLICT (k8s_namespace). In memberships it is 'HOME WORKSPACE', which is no name of a
-- namespace: a broker that does not know home_namespace fails there, and neither changes another
-- namespace nor takes a suspension for done. k8s_sa_name, which was always 'sa-tenant-admin', is
-- 'member-USER' in memberships.
ALTER TABLE workspaces ADD COLUMN home_namespace TEXT;
-- The status in which the user left the tenant; NULL while the user is a member, and in personal
-- workspaces.
ALTER TABLE workspaces ADD COLUMN left_status TEXT;
-- A tenant that was deleted and made again has the same home, and its members the same names there.
CREATE INDEX workspaces_home_namespace ON workspaces (home_namespace, k8s_sa_name)
    WHERE home_namespace IS NOT NULL;

-- Homes of memberships; personal workspaces have none.
CREATE VIEW membership_homes AS
SELECT id AS workspace_id, home_namespace AS home
FROM workspaces WHERE home_namespace IS NOT NULL;

UPDATE schema_compatibility SET oldest_program = 14;
