-- Tenants own namespaces, and a row of workspaces is a membership: one person in one tenant. A tenant
-- without a name is a personal one: it has the identifier of its only member.
CREATE TABLE tenants (
    id BLOB PRIMARY KEY NOT NULL,
    name TEXT UNIQUE,
    created_at INTEGER NOT NULL
);
-- Migration 0016 fills it in.
ALTER TABLE workspaces ADD COLUMN tenant_id BLOB REFERENCES tenants (id);

-- Brokers that do not know this column insert personal workspaces only, whose tenant this trigger
-- adds, so that the column is never NULL. It goes once no such broker may use the schema.
CREATE TRIGGER workspaces_personal_tenant AFTER INSERT ON workspaces
WHEN NEW.tenant_id IS NULL
BEGIN
    INSERT INTO tenants (id, created_at) VALUES (NEW.user_id, NEW.created_at)
        ON CONFLICT (id) DO NOTHING;
    UPDATE workspaces SET tenant_id = NEW.user_id WHERE id = NEW.id;
END;

UPDATE schema_compatibility SET oldest_program = 14;
