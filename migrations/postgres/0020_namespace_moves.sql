-- Announced moves of namespaces into tenants. An administrator announces one at the broker, and then
-- labels the namespace with their own credential. The controller carries it out in the order of the
-- states announced, received and cleared, and deletes the row at the end. from_tenant is the tenant that
-- has, or had, the namespace; requested_by is no reference, because that would lock the table of users.
CREATE TABLE namespace_moves (
    namespace TEXT PRIMARY KEY,
    namespace_uid TEXT NOT NULL,
    from_tenant UUID REFERENCES tenants (id),
    to_tenant UUID NOT NULL REFERENCES tenants (id),
    requested_by UUID NOT NULL,
    state TEXT NOT NULL,
    expires_at BIGINT NOT NULL,
    changed_at BIGINT NOT NULL
);
CREATE INDEX namespace_moves_to_tenant ON namespace_moves (to_tenant);

UPDATE schema_compatibility SET oldest_program = 14;
