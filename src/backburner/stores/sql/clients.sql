-- What clients' time-outs taught. Runs on both.

-- name: insert_time_out
-- Of two in one millisecond, one is enough.
INSERT INTO client_time_outs (name, version, transport, seen_at, waited_ms, silent_ms)
VALUES (:name, :version, :transport, :seen_at, :waited_ms, :silent_ms)
ON CONFLICT (name, version, transport, seen_at) DO NOTHING;

-- name: time_outs
SELECT name, version, transport, seen_at, waited_ms, silent_ms FROM client_time_outs
ORDER BY name, version, transport, seen_at;

-- name: forget_old_time_outs
DELETE FROM client_time_outs
WHERE name = :name AND version = :version AND transport = :transport AND seen_at <= (
    SELECT seen_at FROM client_time_outs WHERE name = :name AND version = :version AND transport = :transport
    ORDER BY seen_at DESC LIMIT 1 OFFSET :keep);

-- name: forget_oldest_time_outs
DELETE FROM client_time_outs WHERE seen_at <= (
    SELECT seen_at FROM client_time_outs ORDER BY seen_at DESC LIMIT 1 OFFSET :keep);

-- name: forget_disproved_time_outs
DELETE FROM client_time_outs
WHERE name = :name AND version = :version AND transport = :transport AND waited_ms < :waited_ms
RETURNING seen_at;

-- name: forget_time_outs_of
DELETE FROM client_time_outs WHERE name = :name RETURNING seen_at;

-- name: forget_all_time_outs
DELETE FROM client_time_outs RETURNING seen_at;
