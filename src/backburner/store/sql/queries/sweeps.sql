-- The keeper's lease and sweeps, and runtimes for estimates. Shared by both dialects.

-- name: renew_keeper
-- Returns no row while another process has the lease. A lease that ends too late was written before the clock was set
-- back.
INSERT INTO keeper (only_one, holder, expires_at) VALUES (1, :holder, :expires_at)
ON CONFLICT (only_one) DO UPDATE SET holder = :holder, expires_at = :expires_at
    WHERE keeper.holder = :holder OR keeper.expires_at <= :now OR keeper.expires_at > :too_late
RETURNING holder;

-- name: held_leases
SELECT t.task_id, t.attempt, t.worker_id, a.heartbeat_at, t.timeout_at - a.started_at AS limit_ms FROM tasks t
JOIN attempts a ON a.task_id = t.task_id AND a.attempt = t.attempt
WHERE t.state IN ({leased});

-- name: heartbeat
SELECT heartbeat_at FROM attempts WHERE task_id = :task_id AND attempt = :attempt;

-- name: attempts_of_worker
SELECT task_id, attempt, worker_id FROM tasks WHERE state IN ({leased}) AND worker_id = :worker_id;

-- name: next_ready_at
SELECT min(ready_at) AS ready_at FROM tasks WHERE ready_at IS NOT NULL AND ready_at < {never};

-- name: make_ready
UPDATE tasks SET ready_at = NULL WHERE ready_at <= :now
RETURNING task_id, queue, seq, {limited};

-- name: make_ready_after_clock_change
-- A task that was updated in the future was delayed before the clock was set back.
UPDATE tasks SET ready_at = NULL WHERE ready_at > :now AND ready_at < {never} AND updated_at > :later
RETURNING task_id, queue, seq, {limited};

-- name: extra_of_unfinished
SELECT DISTINCT extra_json FROM tasks WHERE state IN ({unfinished});

-- name: expiring
-- Leased tasks have no expiry.
SELECT task_id FROM tasks
WHERE expires_at <= :now AND (state = 'queued' OR completed_at IS NOT NULL)
ORDER BY expires_at LIMIT :limit;

-- name: expire_task
-- The record stays until it is purged, so that its owner sees the state.
UPDATE tasks SET state = :state, updated_at = :now, completed_at = coalesce(completed_at, :now), ready_at = NULL,
                 expires_at = NULL, idempotency_key = NULL, external_id = NULL, inputs_json = NULL, result_json = NULL,
                 error_json = NULL, metrics_json = NULL, plain_logs = 0
WHERE task_id = :task_id;

-- name: tasks_with_plain_logs
SELECT task_id FROM tasks WHERE plain_logs = 1 AND completed_at < :finished_before
ORDER BY completed_at LIMIT :limit;

-- name: mark_logs_packed
UPDATE tasks SET plain_logs = 0 WHERE task_id = :task_id;

-- name: insert_runtime
INSERT INTO runtimes (tool_name, ended_at, task_id, inputs_bytes, inputs_hash, seconds, hint_s)
VALUES (:tool_name, :now, :task_id, :inputs_bytes, :inputs_hash, :seconds, :hint_s);

-- name: runtimes
SELECT inputs_bytes, seconds, hint_s, inputs_hash FROM runtimes
WHERE tool_name = :tool_name ORDER BY ended_at DESC LIMIT :limit;

-- name: tools_with_runtimes
SELECT DISTINCT tool_name FROM runtimes;

-- name: delete_old_runtimes
DELETE FROM runtimes WHERE tool_name = :tool_name AND (ended_at, task_id) <= (
    SELECT ended_at, task_id FROM runtimes WHERE tool_name = :tool_name
    ORDER BY ended_at DESC, task_id DESC LIMIT 1 OFFSET :keep)
RETURNING task_id;
