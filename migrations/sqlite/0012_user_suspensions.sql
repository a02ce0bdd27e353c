-- How often the user was suspended. A sign-in keeps the number that it was approved at: its code
-- begins no session once the number is another one.
ALTER TABLE users ADD COLUMN suspensions INTEGER NOT NULL DEFAULT 0;
ALTER TABLE authorizations ADD COLUMN user_suspensions INTEGER;
