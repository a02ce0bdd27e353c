-- The list of all workspaces, page by page.
CREATE INDEX workspaces_created_at ON workspaces (created_at, id);
