-- RoleBindings of others that the last suspension of a tenant deleted, and that its resumption does not
-- restore, so that an administrator can tell the owners.
CREATE TABLE tenant_deleted_bindings (
    tenant_id BLOB NOT NULL REFERENCES tenants (id),
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    PRIMARY KEY (tenant_id, namespace, name)
);

UPDATE schema_compatibility SET oldest_program = 14;
