-- Submission, lookup and lists of tasks. Shared by both dialects.

-- name: insert_task
-- Returns no row if the id, the idempotency key or the external id exists.
INSERT INTO tasks ({inserted_columns}) VALUES ({inserted_values})
ON CONFLICT DO NOTHING
RETURNING seq;

-- name: insert_tag
INSERT INTO task_tags (owner, tag, seq) VALUES (:owner, :tag, :seq);

-- name: insert_event
INSERT INTO task_events (task_id, seq, ts, attempt, signal, from_state, to_state, worker_id, detail_json)
SELECT :task_id, coalesce(max(seq), 0) + 1, :ts, :attempt, :signal, :from_state, :to_state, :worker_id, :detail_json
FROM task_events WHERE task_id = :task_id;

-- name: same_submission
-- The task with this id, or with the same idempotency key or external id.
SELECT task_id, inputs_hash FROM tasks WHERE owner = :owner AND task_id = :task_id
UNION ALL
SELECT task_id, inputs_hash FROM tasks
WHERE owner = :owner AND tool_name = :tool_name AND idempotency_key = CAST(:idempotency_key AS TEXT)
UNION ALL
SELECT task_id, inputs_hash FROM tasks
WHERE owner = :owner AND external_id = CAST(:external_id AS TEXT)
LIMIT 1;

-- name: queue_length
SELECT priority, sum(queued) AS queued FROM queue_depth WHERE queue = :queue GROUP BY priority;

-- name: queue_depths
SELECT queue, coalesce(sum(queued), 0) AS queued FROM queue_depth GROUP BY queue ORDER BY queue;

-- name: leased_by_queue
SELECT queue, count(*) AS leased FROM tasks WHERE state IN ({leased}) GROUP BY queue;

-- name: position
-- The number of ready tasks up to this one, at most :limit.
SELECT count(*) AS position FROM (
    SELECT 1 FROM tasks
    WHERE queue = :queue AND state = 'queued' AND ready_at IS NULL AND priority > :priority
    UNION ALL
    SELECT 1 FROM tasks
    WHERE queue = :queue AND state = 'queued' AND ready_at IS NULL AND priority = :priority AND seq <= :seq
    LIMIT :limit) AS ahead;

-- name: get_task
SELECT t.*, {joined} FROM tasks t {attempts} WHERE t.task_id = :task_id;

-- name: task_head
SELECT task_id, owner, state, attempt, updated_at FROM tasks WHERE task_id = :task_id;

-- name: find_external
SELECT t.*, {joined} FROM tasks t {attempts} WHERE t.owner = :owner AND t.external_id = :external_id;

-- name: ids_between
SELECT task_id FROM tasks
WHERE task_id >= :first AND task_id <= :last AND (CAST(:owner AS TEXT) IS NULL OR owner = :owner)
ORDER BY task_id LIMIT :limit;

-- name: count_owners
SELECT owner, count(*) AS tasks FROM tasks GROUP BY owner ORDER BY owner;

-- name: count_states
SELECT state, count(*) AS tasks FROM tasks GROUP BY state;

-- name: count_states_of_owner
SELECT state, count(*) AS tasks FROM tasks WHERE owner = :owner AND completed_at IS NOT NULL GROUP BY state
UNION ALL
-- The coalesce keeps the planner from a scan of all tasks of the owner.
SELECT state, count(*) AS tasks FROM tasks
WHERE state IN ({unfinished}) AND coalesce(owner, '') = :owner GROUP BY state;

-- name: first_since
-- Task ids sort by age, so a list of later tasks may end here.
SELECT seq FROM tasks WHERE task_id >= :task_id ORDER BY task_id LIMIT 1;

-- fragment: locked
-- The columns that a change of a task needs.
seq, owner, tool_name, state, attempt, failures, worker_id, queue, retry_json, started_at, inputs_bytes, inputs_hash,
hint_s, webhooks_json, submitted_at, cancel_reason,
EXISTS (SELECT 1 FROM checkpoints c WHERE c.task_id = :task_id) AS has_checkpoint, {limited}

-- fragment: unstarted
-- The number of earlier leases that were handed back before the tool began.
(SELECT count(*) FROM attempts u WHERE u.task_id = t.task_id AND u.attempt < t.attempt
     AND u.outcome = 'handedback' AND u.started_at IS NULL) AS unstarted

-- fragment: attempts
LEFT JOIN attempts a ON a.task_id = t.task_id AND a.attempt = t.attempt

-- fragment: joined
-- Heartbeats and progress are in the row of the attempt.
a.heartbeat_at, a.progress_json, {waits_for}, {unstarted},
CASE WHEN a.updated_at > t.updated_at THEN a.updated_at ELSE t.updated_at END AS changed_at

-- fragment: since
      AND t.seq >= :from_seq AND t.submitted_at > :submitted_after

-- fragment: of_tool
      AND (CAST(:tool_name AS TEXT) IS NULL OR t.tool_name = :tool_name)

-- fragment: of_owner
      AND (CAST(:owner AS TEXT) IS NULL OR t.owner = :owner)

-- fragment: also
-- Filters without an index.
      AND t.submitted_at < :submitted_before AND t.task_id >= :first_id AND t.task_id <= :last_id
      AND (CAST(:queue AS TEXT) IS NULL OR t.queue = :queue)
      AND (CAST(:text AS TEXT) IS NULL OR {has_text})

-- fragment: filters
      AND t.seq < :before_seq
      AND (CAST(:state AS TEXT) IS NULL OR t.state = :state)
      AND (CAST(:parent_id AS TEXT) IS NULL OR t.parent_id = :parent_id)
{since}
{also}
{of_tool}
{of_owner}

-- fragment: page
{filters}
ORDER BY t.seq DESC LIMIT :limit;

-- name: list_all
SELECT {listed}, {joined} FROM tasks t {attempts} WHERE 1 = 1
{page}

-- name: list_oldest
-- Oldest first, for any filter. Rare, so it may scan all tasks.
SELECT {listed}, {joined} FROM tasks t {attempts} WHERE t.seq > :after_seq
      AND (CAST(:tag AS TEXT) IS NULL OR EXISTS (SELECT 1 FROM task_tags g WHERE g.seq = t.seq AND g.tag = :tag))
{filters}
ORDER BY t.seq LIMIT :limit;

-- name: list_parent
SELECT {listed}, {joined} FROM tasks t {attempts} WHERE t.parent_id = :parent_id
{page}

-- name: list_owner_tag
SELECT {listed}, {joined} FROM task_tags g JOIN tasks t ON t.seq = g.seq {attempts} WHERE g.owner = :owner AND g.tag = :tag
{filters}
ORDER BY g.seq DESC LIMIT :limit;

-- name: list_tag
SELECT {listed}, {joined} FROM task_tags g JOIN tasks t ON t.seq = g.seq {attempts} WHERE g.tag = :tag
{filters}
ORDER BY g.seq DESC LIMIT :limit;

-- name: events
SELECT * FROM task_events WHERE task_id = :task_id ORDER BY seq;

-- name: attempts
SELECT * FROM attempts WHERE task_id = :task_id ORDER BY attempt;

-- name: delete_task
DELETE FROM tasks WHERE task_id = :task_id;

-- name: delete_attempts
DELETE FROM attempts WHERE task_id = :task_id;

-- name: model_notice
SELECT seq FROM task_events WHERE task_id = :task_id AND attempt = :attempt AND signal = 'told_model' LIMIT 1;

-- name: delete_events
DELETE FROM task_events WHERE task_id = :task_id;

-- name: delete_tags
DELETE FROM task_tags WHERE seq = :seq;
