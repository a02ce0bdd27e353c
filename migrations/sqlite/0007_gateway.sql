-- What the gateway asks all the time: what has come to an end lately.
CREATE INDEX workspaces_status_changed_at ON workspaces (status_changed_at);
CREATE INDEX sessions_ended_at ON sessions (ended_at);
CREATE INDEX issued_credentials_revoked_at ON issued_credentials (revoked_at);

-- What went through the gateway, by day (since 1970) and verb.
CREATE TABLE gateway_usage (
    workspace_id BLOB NOT NULL REFERENCES workspaces (id),
    day INTEGER NOT NULL,
    verb TEXT NOT NULL,
    requests INTEGER NOT NULL,
    throttled INTEGER NOT NULL,
    bytes_up INTEGER NOT NULL,
    bytes_down INTEGER NOT NULL,
    stream_ms INTEGER NOT NULL,
    PRIMARY KEY (workspace_id, day, verb)
);
CREATE INDEX gateway_usage_day ON gateway_usage (day);
