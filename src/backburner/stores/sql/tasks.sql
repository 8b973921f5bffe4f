-- Submitting, reading and listing tasks. Runs on SQLite and PostgreSQL alike.

-- name: insert_task
-- A new task, queued. No row comes back when its idempotency key or external id is taken.
INSERT INTO tasks (
    task_id, owner, tool_name, target, external_id, parent_id, idempotency_key, inputs_json, inputs_hash, inputs_bytes,
    queue, priority, share, tags_json, resources_json, retry_json, meta_json, traceparent, hint_s, estimate_s, ttl_s,
    submitted_at, updated_at, expires_at, state, max_attempts)
VALUES (
    :task_id, :owner, :tool_name, :target, :external_id, :parent_id, :idempotency_key, :inputs_json, :inputs_hash, :inputs_bytes,
    :queue, :priority, :share, :tags_json, :resources_json, :retry_json, :meta_json, :traceparent, :hint_s, :estimate_s, :ttl_s,
    :submitted_at, :submitted_at, :expires_at, 'queued', :max_attempts)
ON CONFLICT DO NOTHING
RETURNING seq;

-- name: insert_tag
INSERT INTO task_tags (owner, tag, seq) VALUES (:owner, :tag, :seq);

-- name: insert_event
INSERT INTO task_events (task_id, seq, ts, attempt, signal, from_state, to_state, worker_id, detail_json)
SELECT :task_id, coalesce(max(seq), 0) + 1, :ts, :attempt, :signal, :from_state, :to_state, :worker_id, :detail_json
FROM task_events WHERE task_id = :task_id;

-- name: same_submission
-- The task that took the same idempotency key or external id before.
SELECT task_id, inputs_hash FROM tasks
WHERE owner = :owner AND tool_name = :tool_name AND idempotency_key = CAST(:idempotency_key AS TEXT)
UNION ALL
SELECT task_id, inputs_hash FROM tasks
WHERE owner = :owner AND external_id = CAST(:external_id AS TEXT)
LIMIT 1;

-- name: queue_length
SELECT coalesce(sum(queued), 0) AS queued,
       coalesce(sum(CASE WHEN priority >= :priority THEN queued ELSE 0 END), 0) AS ahead
FROM queue_depth WHERE queue = :queue;

-- name: queue_depths
SELECT queue, coalesce(sum(queued), 0) AS queued FROM queue_depth GROUP BY queue ORDER BY queue;

-- name: leased_by_queue
SELECT queue, count(*) AS leased FROM tasks
WHERE state IN ('scheduled', 'running', 'input_required', 'cancel_requested', 'cancelling') GROUP BY queue;

-- name: position
-- How many ready tasks are ahead of this one, and itself; counts no further than :limit.
SELECT count(*) AS position FROM (
    SELECT 1 FROM tasks
    WHERE queue = :queue AND state = 'queued' AND ready_at IS NULL
      AND (priority > :priority OR (priority = :priority AND seq <= :seq))
    LIMIT :limit) AS ahead;

-- name: get_task
SELECT * FROM task_whole WHERE task_id = :task_id;

-- name: find_external
SELECT * FROM task_whole WHERE owner = :owner AND external_id = :external_id;

-- name: count_states
SELECT state, count(*) AS tasks FROM tasks
WHERE (CAST(:owner AS TEXT) IS NULL OR owner = :owner) GROUP BY state;

-- fragment: page
-- The filters that need no index of their own, and the page.
      AND seq < :before_seq AND submitted_at > :submitted_after
      AND (CAST(:state AS TEXT) IS NULL OR state = :state)
      AND (CAST(:tool_name AS TEXT) IS NULL OR tool_name = :tool_name)
      AND (CAST(:parent_id AS TEXT) IS NULL OR parent_id = :parent_id)
ORDER BY seq DESC LIMIT :limit;

-- name: list_all
SELECT * FROM task_summary WHERE 1 = 1
{page}

-- name: list_unfinished
-- Of one state that is not final, anyone's.
SELECT * FROM task_summary
WHERE state = :state
  AND state IN ('queued', 'scheduled', 'running', 'input_required', 'cancel_requested', 'cancelling')
{page}

-- name: list_owner_state
SELECT * FROM task_summary WHERE owner = :owner AND state = :state
{page}

-- name: list_owner_tool
SELECT * FROM task_summary WHERE owner = :owner AND tool_name = :tool_name
{page}

-- name: list_parent
SELECT * FROM task_summary WHERE parent_id = :parent_id AND (CAST(:owner AS TEXT) IS NULL OR owner = :owner)
{page}

-- name: list_owner_tag
SELECT * FROM task_summary WHERE seq IN (SELECT seq FROM task_tags WHERE owner = :owner AND tag = :tag)
{page}

-- name: list_tag
SELECT * FROM task_summary WHERE seq IN (SELECT seq FROM task_tags WHERE tag = :tag)
{page}

-- name: events
SELECT * FROM task_events WHERE task_id = :task_id ORDER BY seq;

-- name: attempts
SELECT * FROM attempts WHERE task_id = :task_id ORDER BY attempt;

-- name: delete_task
DELETE FROM tasks WHERE task_id = :task_id;

-- name: delete_attempts
DELETE FROM attempts WHERE task_id = :task_id;

-- name: delete_events
DELETE FROM task_events WHERE task_id = :task_id;

-- name: delete_tags
DELETE FROM task_tags WHERE seq = :seq;
