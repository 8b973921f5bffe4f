-- Statements of PostgreSQL. Its writers are concurrent, so they lock rows.

-- name: ready_tasks
SELECT *, {limited} FROM tasks WHERE queue = :queue AND state = 'queued' AND ready_at IS NULL AND {not_paused}
ORDER BY priority DESC, seq LIMIT :limit FOR UPDATE SKIP LOCKED;

-- name: ready_task
SELECT *, {limited} FROM tasks WHERE task_id = :task_id AND state = 'queued' AND ready_at IS NULL FOR UPDATE;

-- name: ready_of_share
SELECT *, {limited} FROM tasks WHERE queue = :queue AND priority = :priority AND share = :share
  AND state = 'queued' AND ready_at IS NULL
ORDER BY seq LIMIT :limit FOR UPDATE SKIP LOCKED;

-- name: expired_before
SELECT task_id, seq, webhooks_json FROM tasks WHERE state = 'expired' AND updated_at < :before ORDER BY updated_at LIMIT :limit;

-- name: task_heads
-- The ids are a JSON array, so that one statement serves any number of them.
SELECT task_id, owner, state, attempt, updated_at FROM tasks
WHERE task_id IN (SELECT value FROM json_array_elements_text(:task_ids) AS ids (value));

-- fragment: has_text
-- Ignores case.
(t.tool_name ILIKE :text ESCAPE '!' OR t.tags_json ILIKE :text ESCAPE '!'
 OR t.external_id ILIKE :text ESCAPE '!' OR t.error_json ILIKE :text ESCAPE '!')

-- name: lock_task
SELECT {locked} FROM tasks WHERE task_id = :task_id FOR UPDATE;

-- name: terminate_silent_clients
-- Clients of ours that sent nothing for seconds within a transaction. The server's own timeout covers only those that
-- are silent between two statements, not within a pipeline.
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND usename = current_user AND application_name = 'backburner'
  AND xact_start IS NOT NULL AND wait_event = 'ClientRead'
  AND clock_timestamp() - state_change > interval '5 seconds';

-- name: notify
SELECT pg_notify(:channel, :topics);

-- name: lock_counts
-- Serializes fair claims and claims under limits, which count the leases of others.
SELECT pg_advisory_xact_lock(6238125501);

-- These lists compare the columns of their index in its order. With an equality, the planner may scan back through
-- all tasks instead.

-- name: list_state
SELECT {listed}, {joined} FROM tasks t {attempts} WHERE (t.state, t.seq) < (:state, :before_seq) AND t.state >= :state
{since}
{also}
{of_tool}
{of_owner}
ORDER BY t.state DESC, t.seq DESC LIMIT :limit;

-- name: list_owner
SELECT {listed}, {joined} FROM tasks t {attempts} WHERE (t.owner, t.seq) < (:owner, :before_seq) AND t.owner >= :owner
{since}
{also}
ORDER BY t.owner DESC, t.seq DESC LIMIT :limit;

-- name: list_owner_finished
SELECT {listed}, {joined} FROM tasks t {attempts}
WHERE t.owner = :owner AND (t.state, t.seq) < (:state, :before_seq) AND t.state >= :state
  AND t.completed_at IS NOT NULL
{since}
{also}
{of_tool}
ORDER BY t.state DESC, t.seq DESC LIMIT :limit;

-- name: list_owner_tool
SELECT {listed}, {joined} FROM tasks t {attempts}
WHERE (t.owner, t.tool_name, t.seq) < (:owner, :tool_name, :before_seq)
  AND (t.owner, t.tool_name) >= (:owner, :tool_name)
{since}
{also}
ORDER BY t.owner DESC, t.tool_name DESC, t.seq DESC LIMIT :limit;

-- name: feed
-- An open transaction may have events that belong before those of later ones, so the feed ends there.
SELECT o.txid::text::bigint AS txid, o.number, e.*, t.owner, t.tool_name, t.queue
FROM (SELECT * FROM event_order
      WHERE (txid, number) > ((:txid)::text::xid8, :number) AND txid < pg_snapshot_xmin(pg_current_snapshot())
      ORDER BY txid, number LIMIT :limit) o
LEFT JOIN task_events e ON e.task_id = o.task_id AND e.seq = o.seq
LEFT JOIN tasks t ON t.task_id = e.task_id
ORDER BY o.txid, o.number;

-- name: first_event
SELECT txid::text::bigint AS txid, number FROM event_order ORDER BY txid, number LIMIT 1;

-- name: feed_end
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS txid, 0 AS number;

-- name: database_size
SELECT pg_database_size(current_database()) AS bytes;

-- template: write_rows
COPY {table} ({columns}) FROM STDIN;

-- template: analyze_table
-- The planner has no statistics of copied rows until autovacuum runs.
ANALYZE {table};

-- name: set_lock_timeout
SET LOCAL lock_timeout = '10s';

-- name: disable_queue_counts
-- Counting row by row in one transaction gets slower with each row. Other writers of tasks wait from here on.
ALTER TABLE tasks DISABLE TRIGGER tasks_enter_or_leave;

-- name: disable_event_order
-- Events from before the copy are not in the feed.
ALTER TABLE task_events DISABLE TRIGGER task_events_in_order;

-- name: delete_queue_counts
DELETE FROM queue_depth;

-- name: count_queued
INSERT INTO queue_depth (queue, priority, shard, queued)
SELECT queue, priority, 0, count(*) FROM tasks WHERE state = 'queued' GROUP BY queue, priority;

-- name: enable_queue_counts
ALTER TABLE tasks ENABLE TRIGGER tasks_enter_or_leave;

-- name: enable_event_order
ALTER TABLE task_events ENABLE TRIGGER task_events_in_order;

-- name: advance_task_sequence
SELECT setval(pg_get_serial_sequence('tasks', 'seq'), max(seq)) FROM tasks;
