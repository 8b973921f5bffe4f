-- What only PostgreSQL runs, and what it says differently: its writers run side by side, so they lock rows.

-- name: ready_tasks
-- Rows that another claim holds are passed over.
SELECT * FROM tasks WHERE queue = :queue AND state = 'queued' AND ready_at IS NULL
ORDER BY priority DESC, seq LIMIT :limit FOR UPDATE SKIP LOCKED;

-- name: ready_task
SELECT * FROM tasks WHERE task_id = :task_id AND state = 'queued' AND ready_at IS NULL FOR UPDATE;

-- name: ready_of_share
SELECT * FROM tasks WHERE queue = :queue AND priority = :priority AND share = :share
  AND state = 'queued' AND ready_at IS NULL
ORDER BY seq LIMIT :limit FOR UPDATE SKIP LOCKED;

-- name: expired_before
SELECT task_id, seq FROM tasks WHERE state = 'expired' AND updated_at < :before ORDER BY updated_at LIMIT :limit;

-- name: lock_task
SELECT seq, owner, state, attempt, failures, worker_id, queue, retry_json, submitted_at, started_at, cancel_requested
FROM tasks WHERE task_id = :task_id FOR UPDATE;

-- name: notify
SELECT pg_notify('backburner', :topics);

-- name: lock_fair_claim
-- Fair claims count what others hold, so they take turns.
SELECT pg_advisory_xact_lock(6238125501);
