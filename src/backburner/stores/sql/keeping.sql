-- The keeper's sweeps, and what estimates learn from. Runs on both.

-- name: keep
-- Become or stay the keeper. No row comes back while somebody else holds it. What ends far later than it could
-- if it was written now is of a clock that was set back.
INSERT INTO keeper (only_one, holder, expires_at) VALUES (1, :holder, :expires_at)
ON CONFLICT (only_one) DO UPDATE SET holder = :holder, expires_at = :expires_at
    WHERE keeper.holder = :holder OR keeper.expires_at <= :now OR keeper.expires_at > :too_late
RETURNING holder;

-- name: leases
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

-- name: make_ready_what_is_of_another_clock
-- What was put off at a moment that is still to come was put off by a clock that was set back since.
UPDATE tasks SET ready_at = NULL WHERE ready_at > :now AND ready_at < {never} AND updated_at > :later
RETURNING task_id, queue, seq, {limited};

-- name: meta_of_unfinished
SELECT DISTINCT meta_json FROM tasks WHERE state IN ({unfinished});

-- name: expiring
-- What a worker holds is left alone: it has no expiry from its start to its end.
SELECT task_id FROM tasks
WHERE expires_at <= :now AND (state = 'queued' OR completed_at IS NOT NULL)
ORDER BY expires_at LIMIT :limit;

-- name: expire_task
-- The record stays for a while, so that its owner can be told what became of it; what it held goes.
UPDATE tasks SET state = :state, updated_at = :now, completed_at = coalesce(completed_at, :now), ready_at = NULL,
                 expires_at = NULL, idempotency_key = NULL, external_id = NULL, inputs_json = NULL, result_json = NULL,
                 error_json = NULL, metrics_json = NULL, plain_logs = 0
WHERE task_id = :task_id;

-- name: with_plain_logs
SELECT task_id FROM tasks WHERE plain_logs = 1 AND completed_at < :finished_before
ORDER BY completed_at LIMIT :limit;

-- name: logs_are_packed
UPDATE tasks SET plain_logs = 0 WHERE task_id = :task_id;

-- name: insert_runtime
INSERT INTO runtimes (tool_name, ended_at, task_id, inputs_bytes, seconds, hint_s)
VALUES (:tool_name, :now, :task_id, :inputs_bytes, :seconds, :hint_s);

-- name: runtimes
SELECT inputs_bytes, seconds, hint_s FROM runtimes WHERE tool_name = :tool_name ORDER BY ended_at DESC LIMIT :limit;

-- name: tools_with_runtimes
SELECT DISTINCT tool_name FROM runtimes;

-- name: forget_runtimes
DELETE FROM runtimes WHERE tool_name = :tool_name AND (ended_at, task_id) <= (
    SELECT ended_at, task_id FROM runtimes WHERE tool_name = :tool_name
    ORDER BY ended_at DESC, task_id DESC LIMIT 1 OFFSET :keep)
RETURNING task_id;

-- name: rewrite_secret
-- A write that changes nothing: it shows that one is possible.
UPDATE store_secret SET secret = secret;
