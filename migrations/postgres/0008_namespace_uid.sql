-- The uid of the namespace that the broker made for a workspace: by it the broker knows the namespace where
-- somebody took the label off. NULL until the next drift round for workspaces of earlier versions.
ALTER TABLE workspaces ADD COLUMN k8s_namespace_uid TEXT;
