-- Tenants own namespaces, and a row of workspaces is a membership: one person in one tenant. A tenant
-- without a name is a personal one: it has the identifier of its only member.
CREATE TABLE tenants (
    id UUID PRIMARY KEY,
    name TEXT UNIQUE,
    created_at BIGINT NOT NULL
);
-- Migration 0016 fills it in, because readers have to wait until this one ends.
ALTER TABLE workspaces ADD COLUMN tenant_id UUID REFERENCES tenants (id);

-- Brokers that do not know this column insert personal workspaces only, whose tenant this trigger
-- adds, so that the column is never NULL. It goes once no such broker may use the schema.
CREATE FUNCTION add_personal_tenant() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO tenants (id, created_at) VALUES (NEW.user_id, NEW.created_at)
        ON CONFLICT (id) DO NOTHING;
    NEW.tenant_id := NEW.user_id;
    RETURN NEW;
END
$$;
CREATE TRIGGER workspaces_personal_tenant BEFORE INSERT ON workspaces
    FOR EACH ROW WHEN (NEW.tenant_id IS NULL) EXECUTE FUNCTION add_personal_tenant();

UPDATE schema_compatibility SET oldest_program = 14;
