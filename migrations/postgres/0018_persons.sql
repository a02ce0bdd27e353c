-- Who a person is to Kubernetes: a user name and groups (docs/tenants.md). Groups are a JSON list of
-- names, and NULL for none. Those of an identity are what its provider said last; those of a user are
-- what an administrator gave. The user name of an identity is the provider's, and no two people of
-- one provider have the same.
ALTER TABLE identities ADD COLUMN groups TEXT;
ALTER TABLE identities ADD COLUMN user_name TEXT;
CREATE UNIQUE INDEX identities_issuer_user_name ON identities (issuer, user_name);

-- Who vouches for the address: 'provider' or 'administrator'. NULL: nobody, as for accounts that
-- people registered themselves, and for rows of brokers that do not know this column.
-- person_changed_at: when user name or groups changed last; NULL if not since this migration.
ALTER TABLE users ADD COLUMN groups TEXT;
ALTER TABLE users ADD COLUMN email_verified_by TEXT;
ALTER TABLE users ADD COLUMN person_changed_at BIGINT;
CREATE INDEX users_person_changed_at ON users (person_changed_at);

UPDATE schema_compatibility SET oldest_program = 14;
