-- The scope of an access token that may do less than its session; NULL is all of the session's.
ALTER TABLE access_tokens ADD COLUMN scope TEXT;
