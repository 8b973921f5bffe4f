-- Calls whose answer nobody has got yet. Runs on both.

-- name: keep_call
-- What was given up once stays so: who came after may be gone as well.
INSERT INTO open_calls (task_id, owner, tool_name, inputs_hash, attended_until, given_up)
VALUES (:task_id, :owner, :tool_name, :inputs_hash, :attended_until, :given_up)
ON CONFLICT (task_id) DO UPDATE SET attended_until = :attended_until,
                                    given_up = coalesce(:given_up, open_calls.given_up);

-- name: close_call
DELETE FROM open_calls WHERE task_id = :task_id;

-- name: any_call
SELECT task_id FROM open_calls LIMIT 1;

-- name: calls_like
SELECT task_id, attended_until, given_up FROM open_calls
WHERE owner = :owner AND tool_name = :tool_name AND inputs_hash = :inputs_hash ORDER BY task_id DESC LIMIT 100;

-- name: forget_calls
DELETE FROM open_calls WHERE NOT EXISTS (
    SELECT 1 FROM tasks t WHERE t.task_id = open_calls.task_id
    AND (t.completed_at IS NULL OR t.completed_at >= :finished_before) AND t.state <> 'expired')
RETURNING task_id;
