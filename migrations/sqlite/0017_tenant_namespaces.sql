-- Tenants of a cluster: an open one has a name, and is an object of the kind Tenant with this group and
-- uid. These columns are NULL in personal tenants, also in those that earlier brokers insert.
ALTER TABLE tenants ADD COLUMN object_group TEXT;
ALTER TABLE tenants ADD COLUMN object_uid TEXT;
ALTER TABLE tenants ADD COLUMN status TEXT;
ALTER TABLE tenants ADD COLUMN status_changed_at INTEGER;
-- The name of a closed tenant, whose object is gone: an object made later may have that name.
ALTER TABLE tenants ADD COLUMN closed_name TEXT;
CREATE INDEX tenants_object_uid ON tenants (object_uid) WHERE object_uid IS NOT NULL;

-- Namespaces of tenants. A name is that of one namespace of the cluster, so it is here once. made_by
-- is the user who made it; it is no reference, because that would lock the table of users.
CREATE TABLE tenant_namespaces (
    name TEXT PRIMARY KEY NOT NULL,
    tenant_id BLOB NOT NULL REFERENCES tenants (id),
    status TEXT NOT NULL,
    made_by BLOB,
    created_at INTEGER NOT NULL,
    change_at INTEGER NOT NULL
);
CREATE INDEX tenant_namespaces_tenant_id ON tenant_namespaces (tenant_id, status);
CREATE INDEX tenant_namespaces_gone ON tenant_namespaces (change_at) WHERE status = 'gone';

UPDATE schema_compatibility SET oldest_program = 14;
