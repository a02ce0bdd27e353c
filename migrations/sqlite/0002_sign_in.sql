-- One row from the device's request to the redeemed device code (RFC 8628).
CREATE TABLE device_authorizations (
    id BLOB PRIMARY KEY NOT NULL,
    device_code_hash BLOB NOT NULL UNIQUE,
    user_code_hash BLOB NOT NULL UNIQUE,
    client_id TEXT NOT NULL,
    scope TEXT NOT NULL,
    ip_address TEXT,
    user_agent TEXT,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    interval_seconds INTEGER NOT NULL,
    polled_at INTEGER,
    decision TEXT,
    authorization_id BLOB,
    redeemed_at INTEGER
);
CREATE INDEX device_authorizations_expires_at ON device_authorizations (expires_at);

-- Browsers in which somebody signed in before: their tries are counted on their own, so that nobody
-- else's tries lock them out.
CREATE TABLE known_browsers (
    token_hash BLOB NOT NULL,
    user_id BLOB NOT NULL REFERENCES users (id),
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (token_hash, user_id)
);
CREATE INDEX known_browsers_user_id ON known_browsers (user_id);
CREATE INDEX known_browsers_expires_at ON known_browsers (expires_at);
