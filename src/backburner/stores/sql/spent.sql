-- Names that can be used once. Runs on both.

-- name: spend
-- No row comes back for a name that is spent already.
INSERT INTO spent_names (name, until) VALUES (:name, :until)
ON CONFLICT (name) DO NOTHING
RETURNING name;

-- name: is_spent
SELECT name FROM spent_names WHERE name = :name;

-- name: forget_spent
DELETE FROM spent_names WHERE until < :now;
