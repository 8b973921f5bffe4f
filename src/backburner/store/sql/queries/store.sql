-- The secret of the store, and single-use names. Shared by both dialects.

-- name: secret
SELECT secret FROM store_secret;

-- name: rewrite_secret
-- A write that changes nothing, to test whether the store is writable.
UPDATE store_secret SET secret = secret;

-- name: spend_name
-- Returns no row for a name that was used.
INSERT INTO spent_names (name, until) VALUES (:name, :until)
ON CONFLICT (name) DO NOTHING
RETURNING name;

-- name: spent_name
SELECT name FROM spent_names WHERE name = :name;

-- name: delete_expired_names
DELETE FROM spent_names WHERE until < :now;
