-- Timeouts of clients, and open calls. Shared by both dialects.

-- name: insert_client_timeout
INSERT INTO client_time_outs (name, version, transport, seen_at, waited_ms, silent_ms)
VALUES (:name, :version, :transport, :seen_at, :waited_ms, :silent_ms)
ON CONFLICT (name, version, transport, seen_at) DO NOTHING;

-- name: client_timeouts
SELECT name, version, transport, seen_at, waited_ms, silent_ms FROM client_time_outs
ORDER BY name, version, transport, seen_at;

-- name: trim_client_timeouts
DELETE FROM client_time_outs
WHERE name = :name AND version = :version AND transport = :transport AND seen_at <= (
    SELECT seen_at FROM client_time_outs WHERE name = :name AND version = :version AND transport = :transport
    ORDER BY seen_at DESC LIMIT 1 OFFSET :keep);

-- name: trim_all_client_timeouts
DELETE FROM client_time_outs WHERE seen_at <= (
    SELECT seen_at FROM client_time_outs ORDER BY seen_at DESC LIMIT 1 OFFSET :keep);

-- name: delete_shorter_client_timeouts
DELETE FROM client_time_outs
WHERE name = :name AND version = :version AND transport = :transport AND waited_ms < :waited_ms
RETURNING seen_at;

-- name: delete_client_timeouts
DELETE FROM client_time_outs WHERE name = :name RETURNING seen_at;

-- name: delete_all_client_timeouts
DELETE FROM client_time_outs RETURNING seen_at;

-- name: upsert_call
-- A call that was given up once stays so.
INSERT INTO open_calls (task_id, owner, tool_name, inputs_hash, attended_until, given_up)
VALUES (:task_id, :owner, :tool_name, :inputs_hash, :attended_until, :given_up)
ON CONFLICT (task_id) DO UPDATE SET attended_until = :attended_until,
                                    given_up = coalesce(:given_up, open_calls.given_up);

-- name: delete_call
DELETE FROM open_calls WHERE task_id = :task_id;

-- name: any_open_call
SELECT task_id FROM open_calls LIMIT 1;

-- name: matching_calls
SELECT * FROM open_calls
WHERE owner = :owner AND tool_name = :tool_name AND inputs_hash = :inputs_hash ORDER BY task_id DESC LIMIT 100;

-- name: delete_finished_calls
DELETE FROM open_calls WHERE NOT EXISTS (
    SELECT 1 FROM tasks t WHERE t.task_id = open_calls.task_id
    AND (t.completed_at IS NULL OR t.completed_at >= :finished_before) AND t.state <> 'expired')
RETURNING task_id;
