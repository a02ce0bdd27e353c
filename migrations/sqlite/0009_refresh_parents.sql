-- The refresh token that this one is a successor of. When one successor is used, its siblings are
-- void. NULL: the first token of its session, or one that was issued before this column.
ALTER TABLE refresh_tokens ADD COLUMN parent_hash BLOB;
CREATE INDEX refresh_tokens_parent_hash ON refresh_tokens (parent_hash);
