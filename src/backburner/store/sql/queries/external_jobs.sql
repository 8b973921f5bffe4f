-- Jobs of external queues. Shared by both dialects.

-- name: tasks_without_job
-- Ready tasks without a job for their next attempt. `task_id` is NULL, or the only candidate.
SELECT t.task_id FROM tasks t
WHERE t.queue = :queue AND t.state = 'queued' AND t.ready_at IS NULL AND {not_paused}
  AND (CAST(:task_id AS TEXT) IS NULL OR t.task_id = :task_id)
  AND NOT EXISTS (SELECT 1 FROM hand_outs h WHERE h.task_id = t.task_id AND h.attempt > t.attempt
                  AND (h.again_at IS NULL OR h.again_at > :now))
ORDER BY t.priority DESC, t.seq LIMIT :limit;

-- name: claim_external_job
-- Returns no row if another process was first.
INSERT INTO hand_outs (task_id, engine, queue, attempt, job, handed_at)
SELECT t.task_id, :engine, t.queue, t.attempt + 1, '', CAST(:now AS BIGINT) FROM tasks t
WHERE t.task_id = :task_id AND t.state = 'queued'
ON CONFLICT (task_id) DO UPDATE SET
    engine = excluded.engine, queue = excluded.queue, job = '', handed_at = excluded.handed_at, again_at = NULL,
    ended = CASE WHEN hand_outs.attempt = excluded.attempt THEN hand_outs.ended ELSE 0 END,
    attempt = excluded.attempt
WHERE hand_outs.attempt < excluded.attempt OR hand_outs.again_at <= :now
RETURNING task_id;

-- name: insert_external_job
-- For a new task.
INSERT INTO hand_outs (task_id, engine, queue, attempt, job, handed_at) VALUES (:task_id, :engine, :queue, 1, '', :now);

-- name: set_job
UPDATE hand_outs SET job = :job, problem = NULL WHERE task_id = :task_id AND again_at IS NULL;

-- name: fail_external_job
UPDATE hand_outs SET problem = :problem, again_at = :again_at WHERE task_id = :task_id;

-- name: external_jobs
SELECT h.task_id, h.engine, h.queue, h.attempt, h.job, h.handed_at, h.ended, coalesce(t.state, 'expired') AS state,
       CASE WHEN t.state = 'queued' AND t.attempt < h.attempt THEN 1 ELSE 0 END AS waits
FROM hand_outs h LEFT JOIN tasks t ON t.task_id = h.task_id
WHERE h.engine = :engine AND (h.again_at IS NULL OR t.completed_at IS NOT NULL OR t.state IS NULL)
ORDER BY h.task_id;

-- name: requeue_external_job
-- Only for tasks that still wait; a late job of one finds that it is claimed.
UPDATE hand_outs SET again_at = :now, ended = ended + :ended
WHERE task_id = :task_id AND again_at IS NULL AND EXISTS (
    SELECT 1 FROM tasks t WHERE t.task_id = hand_outs.task_id AND t.state = 'queued'
    AND t.attempt < hand_outs.attempt);

-- name: delete_external_job
DELETE FROM hand_outs WHERE task_id = :task_id AND NOT EXISTS (
    SELECT 1 FROM tasks t WHERE t.task_id = hand_outs.task_id AND t.completed_at IS NULL AND t.state <> 'expired');
