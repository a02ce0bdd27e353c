-- The oldest program that may use this schema: the number of the last migration that it has to know.
-- Every later migration sets it (migrations/README.md). A program of the previous version therefore
-- starts again during a rolling upgrade, and one that would misread the tables does not.
CREATE TABLE schema_compatibility (
    id BIGINT PRIMARY KEY NOT NULL CHECK (id = 1),
    oldest_program INTEGER NOT NULL
);
INSERT INTO schema_compatibility VALUES (1, 14);
