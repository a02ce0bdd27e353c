-- From when on the sweep may take a workspace up that is half done. While a replica works on it,
-- this is the end of its lease; after a failure, the end of a back-off that grows.
ALTER TABLE workspaces ADD COLUMN sweep_at BIGINT NOT NULL DEFAULT 0;
ALTER TABLE workspaces ADD COLUMN sweep_attempts BIGINT NOT NULL DEFAULT 0;
-- The step at which the last try stopped.
ALTER TABLE workspaces ADD COLUMN open_step TEXT;
DROP INDEX workspaces_status;
CREATE INDEX workspaces_status ON workspaces (status, sweep_at);

-- What differs in the cluster from what has to be, and was not set right yet.
CREATE TABLE drifts (
    workspace_id UUID NOT NULL REFERENCES workspaces (id),
    kind TEXT NOT NULL,
    what TEXT NOT NULL,
    found_at BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, kind, what)
);

-- Work that one replica at a time does: the holder, until its time is over.
CREATE TABLE leases (
    name TEXT PRIMARY KEY,
    holder UUID NOT NULL,
    held_until BIGINT NOT NULL
);
