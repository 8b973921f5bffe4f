-- Claims, reports of attempts, and state changes. Shared by both dialects.

-- name: top_ready_priority
SELECT priority FROM tasks WHERE queue = :queue AND state = 'queued' AND ready_at IS NULL AND priority < :below
  AND {not_paused}
ORDER BY priority DESC LIMIT 1;

-- name: ready_shares
-- Every share with a ready task at this priority, and its oldest task. Skips from share to share through the index, in
-- a time that does not depend on the length of the queue.
WITH RECURSIVE walk (share) AS (
    SELECT min(share) FROM tasks
    WHERE queue = :queue AND priority = :priority AND state = 'queued' AND ready_at IS NULL
    UNION ALL
    SELECT (SELECT min(t.share) FROM tasks t
            WHERE t.queue = :queue AND t.priority = :priority AND t.state = 'queued' AND t.ready_at IS NULL
              AND t.share > walk.share)
    FROM walk WHERE walk.share IS NOT NULL)
SELECT walk.share AS share,
       (SELECT min(t.seq) FROM tasks t
        WHERE t.queue = :queue AND t.priority = :priority AND t.share = walk.share
          AND t.state = 'queued' AND t.ready_at IS NULL) AS oldest
FROM walk WHERE walk.share IS NOT NULL;

-- name: leased_by_share
SELECT share, count(*) AS leased FROM tasks WHERE state IN ({leased}) AND queue = :queue GROUP BY share;

-- name: lease_task
UPDATE tasks SET state = :state, attempt = :attempt, worker_id = :worker_id, updated_at = :now, ready_at = NULL,
                 timeout_at = NULL, error_json = NULL
WHERE seq = :seq;

-- name: insert_attempt
INSERT INTO attempts (task_id, attempt, worker_id, claimed_at, heartbeat_at, updated_at)
VALUES (:task_id, :attempt, :worker_id, :now, :now, :now);

-- name: last_log_seq
SELECT coalesce(max(seq), 0) AS seq FROM (
    SELECT max(seq) AS seq FROM task_logs WHERE task_id = :task_id
    UNION ALL SELECT max(last_seq) FROM task_log_chunks WHERE task_id = :task_id) AS written;

-- name: checkpoint
SELECT data_json FROM checkpoints WHERE task_id = :task_id;

-- name: move_task
UPDATE tasks SET state = :state, updated_at = :now, worker_id = :worker_id
WHERE task_id = :task_id;

-- name: start_task
UPDATE tasks SET state = :state, updated_at = :now, started_at = coalesce(started_at, :started_at),
                 timeout_at = :timeout_at, expires_at = NULL
WHERE task_id = :task_id;

-- name: start_attempt
UPDATE attempts SET started_at = :started_at, updated_at = :now, pid = :pid
WHERE task_id = :task_id AND attempt = :attempt;

-- name: request_cancel
UPDATE tasks SET state = :state, updated_at = :now, cancel_requested = 1, cancel_reason = :reason
WHERE task_id = :task_id;

-- name: finish_task
-- The time to live begins here.
UPDATE tasks SET state = :state, updated_at = :now, completed_at = :now, failures = :failures, ready_at = NULL,
                 expires_at = :now + CAST(ttl_s * 1000 AS BIGINT),
                 started_at = coalesce(started_at, :started_at),
                 result_json = :result_json, error_json = :error_json, metrics_json = :metrics_json,
                 plain_logs = CASE WHEN EXISTS (SELECT 1 FROM task_logs WHERE task_id = :task_id) THEN 1 ELSE 0 END
WHERE task_id = :task_id;

-- name: requeue_task
-- Clears the outcome, the cancel request and the times of the attempt. The time to live begins again if it started.
UPDATE tasks SET state = :state, updated_at = :now, ready_at = :ready_at, failures = :failures, worker_id = NULL,
                 started_at = NULL, timeout_at = NULL, completed_at = NULL, cancel_requested = 0, cancel_reason = NULL,
                 result_json = NULL, error_json = :error_json, metrics_json = NULL, plain_logs = 0,
                 expires_at = CASE WHEN :ran THEN :now + CAST(ttl_s * 1000 AS BIGINT) ELSE expires_at END
WHERE task_id = :task_id;

-- name: end_attempt
UPDATE attempts SET ended_at = :now, updated_at = :now, outcome = :outcome, error_json = :error_json,
                    started_at = coalesce(started_at, :started_at), pid = coalesce(pid, :pid)
WHERE task_id = :task_id AND attempt = :attempt AND ended_at IS NULL;

-- name: set_progress
UPDATE attempts SET progress_json = :progress_json, updated_at = :now, heartbeat_at = :now
WHERE task_id = :task_id AND attempt = :attempt;

-- name: renew_heartbeat
UPDATE attempts SET heartbeat_at = :now
WHERE task_id = :task_id AND attempt = :attempt AND ended_at IS NULL;

-- name: write_worker
INSERT INTO workers (worker_id, supervisor_id, host, queue, state, started_at, last_heartbeat, pid, current_task_id)
VALUES (:worker_id, :supervisor_id, :host, :queue, :state, :started_at, :last_heartbeat, :pid, :current_task_id)
ON CONFLICT (worker_id) DO UPDATE SET state = :state, last_heartbeat = :last_heartbeat, pid = :pid,
                                      current_task_id = :current_task_id;

-- name: remove_workers
DELETE FROM workers WHERE supervisor_id = :supervisor_id;

-- name: workers
SELECT * FROM workers ORDER BY worker_id;
