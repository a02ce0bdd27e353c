-- To whom, where that is not the actor; and the place in the chain, once a row is sealed.
ALTER TABLE audit_logs ADD COLUMN subject_user_id UUID;
ALTER TABLE audit_logs ADD COLUMN subject_session_id UUID;
ALTER TABLE audit_logs ADD COLUMN sequence BIGINT;
ALTER TABLE audit_logs ADD COLUMN hash BYTEA;
CREATE INDEX audit_logs_subject_user_id ON audit_logs (subject_user_id, id)
    WHERE subject_user_id IS NOT NULL;
-- A row that is written touches the first of these only, until it is sealed.
CREATE INDEX audit_logs_unsealed ON audit_logs (created_at, id) WHERE sequence IS NULL;
CREATE UNIQUE INDEX audit_logs_sequence ON audit_logs (sequence) WHERE sequence IS NOT NULL;

-- One row: where the chain ends, and where its beginning was cut off, signed.
CREATE TABLE audit_chain (
    id BIGINT PRIMARY KEY CHECK (id = 1),
    sequence BIGINT NOT NULL,
    hash BYTEA NOT NULL,
    sealed_at BIGINT NOT NULL,
    anchor_sequence BIGINT NOT NULL,
    anchor TEXT
);
INSERT INTO audit_chain VALUES (1, 0, decode('0000000000000000000000000000000000000000000000000000000000000000', 'hex'), 0, 0, NULL);

-- Signed: this row had this hash, and with it all rows before.
CREATE TABLE audit_checkpoints (
    sequence BIGINT PRIMARY KEY,
    created_at BIGINT NOT NULL,
    signed TEXT NOT NULL
);
