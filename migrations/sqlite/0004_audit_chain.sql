-- To whom, where that is not the actor; and the place in the chain, once a row is sealed.
ALTER TABLE audit_logs ADD COLUMN subject_user_id BLOB;
ALTER TABLE audit_logs ADD COLUMN subject_session_id BLOB;
ALTER TABLE audit_logs ADD COLUMN sequence INTEGER;
ALTER TABLE audit_logs ADD COLUMN hash BLOB;
CREATE INDEX audit_logs_subject_user_id ON audit_logs (subject_user_id, id)
    WHERE subject_user_id IS NOT NULL;
-- A row that is written touches the first of these only, until it is sealed.
CREATE INDEX audit_logs_unsealed ON audit_logs (created_at, id) WHERE sequence IS NULL;
CREATE UNIQUE INDEX audit_logs_sequence ON audit_logs (sequence) WHERE sequence IS NOT NULL;

-- BIGINT and not INTEGER as primary keys: so they have an index of their own as on the other engine.
-- One row: where the chain ends, and where its beginning was cut off, signed.
CREATE TABLE audit_chain (
    id BIGINT PRIMARY KEY NOT NULL CHECK (id = 1),
    sequence INTEGER NOT NULL,
    hash BLOB NOT NULL,
    sealed_at INTEGER NOT NULL,
    anchor_sequence INTEGER NOT NULL,
    anchor TEXT
);
INSERT INTO audit_chain VALUES (1, 0, x'0000000000000000000000000000000000000000000000000000000000000000', 0, 0, NULL);

-- Signed: this row had this hash, and with it all rows before.
CREATE TABLE audit_checkpoints (
    sequence BIGINT PRIMARY KEY NOT NULL,
    created_at INTEGER NOT NULL,
    signed TEXT NOT NULL
);
