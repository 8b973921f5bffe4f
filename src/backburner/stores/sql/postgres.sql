-- What only PostgreSQL runs, and what it says differently: its writers run side by side, so they lock rows.

-- name: ready_tasks
-- Rows that another claim holds are passed over.
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
-- The ids are a JSON array, so that the statement is the same for any number of them.
SELECT task_id, owner, state, attempt, updated_at FROM tasks
WHERE task_id IN (SELECT value FROM json_array_elements_text(:task_ids) AS ids (value));

-- fragment: has_text
-- Small letters and capitals are the same.
(t.tool_name ILIKE :text ESCAPE '!' OR t.tags_json ILIKE :text ESCAPE '!'
 OR t.external_id ILIKE :text ESCAPE '!' OR t.error_json ILIKE :text ESCAPE '!')

-- name: lock_task
SELECT {locked} FROM tasks WHERE task_id = :task_id FOR UPDATE;

-- name: end_silent_clients
-- Ours that are in the middle of a transaction and have sent nothing for so long. The server itself ends only those
-- that fell silent between two statements, not within what they sent together.
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND usename = current_user AND application_name = 'backburner'
  AND xact_start IS NOT NULL AND wait_event = 'ClientRead'
  AND clock_timestamp() - state_change > interval '5 seconds';

-- name: notify
SELECT pg_notify(:channel, :topics);

-- name: lock_counted
-- Fair claims, and those under limits, count what others hold, so they take turns.
SELECT pg_advisory_xact_lock(6238125501);

-- These walks name the columns of their index in its order. Left to an equality, the planner may walk back
-- through all tasks instead, and pass a million before it meets one that fits.

-- name: list_state
SELECT t.*, {hint} FROM task_summary t WHERE (t.state, t.seq) < (:state, :before_seq) AND t.state >= :state
{since}
{also}
{of_tool}
{of_owner}
ORDER BY t.state DESC, t.seq DESC LIMIT :limit;

-- name: list_owner
SELECT t.*, {hint} FROM task_summary t WHERE (t.owner, t.seq) < (:owner, :before_seq) AND t.owner >= :owner
{since}
{also}
ORDER BY t.owner DESC, t.seq DESC LIMIT :limit;

-- name: list_owner_finished
-- Of one final state.
SELECT t.*, {hint} FROM task_summary t
WHERE t.owner = :owner AND (t.state, t.seq) < (:state, :before_seq) AND t.state >= :state
  AND t.completed_at IS NOT NULL
{since}
{also}
{of_tool}
ORDER BY t.state DESC, t.seq DESC LIMIT :limit;

-- name: list_owner_tool
SELECT t.*, {hint} FROM task_summary t
WHERE (t.owner, t.tool_name, t.seq) < (:owner, :tool_name, :before_seq)
  AND (t.owner, t.tool_name) >= (:owner, :tool_name)
{since}
{also}
ORDER BY t.owner DESC, t.tool_name DESC, t.seq DESC LIMIT :limit;

-- name: events_after
-- A transaction that is still open may have events that belong before those of later ones, so these wait for it.
SELECT o.txid::text::bigint AS txid, o.number, e.*, t.owner, t.tool_name, t.queue
FROM (SELECT * FROM event_order
      WHERE (txid, number) > ((:txid)::text::xid8, :number) AND txid < pg_snapshot_xmin(pg_current_snapshot())
      ORDER BY txid, number LIMIT :limit) o
LEFT JOIN task_events e ON e.task_id = o.task_id AND e.seq = o.seq
LEFT JOIN tasks t ON t.task_id = e.task_id
ORDER BY o.txid, o.number;

-- name: first_in_order
SELECT txid::text::bigint AS txid, number FROM event_order ORDER BY txid, number LIMIT 1;

-- name: end_of_order
-- What is not committed yet, or comes later, is after this.
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS txid, 0 AS number;

-- name: database_size
SELECT pg_database_size(current_database()) AS bytes;

-- name: counts_slowly
-- Whether the trigger is the one of the first migration: it calls a function, which is planned at each call.
SELECT f.oid FROM pg_trigger t JOIN pg_proc f ON f.oid = t.tgfoid
WHERE t.tgrelid = to_regclass('tasks') AND f.proname = 'keep_queue_depth' AND position('count_queued' IN f.prosrc) > 0;

-- name: count_quickly
-- The same in place. It is no migration, since whoever knows the other one is served as well.
CREATE OR REPLACE FUNCTION keep_queue_depth() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' AND OLD.state = 'queued' THEN
        INSERT INTO queue_depth VALUES (OLD.queue, OLD.priority, mod(pg_backend_pid(), 32), -1)
            ON CONFLICT (queue, priority, shard) DO UPDATE SET queued = queue_depth.queued - 1;
    END IF;
    IF TG_OP <> 'DELETE' AND NEW.state = 'queued' THEN
        INSERT INTO queue_depth VALUES (NEW.queue, NEW.priority, mod(pg_backend_pid(), 32), 1)
            ON CONFLICT (queue, priority, shard) DO UPDATE SET queued = queue_depth.queued + 1;
    END IF;
    RETURN NULL;
END $$;

-- template: write_rows
COPY {table} ({columns}) FROM STDIN;

-- template: learn_sizes
-- The planner knows nothing of rows that came at once, until autovacuum looks.
ANALYZE {table};

-- name: wait_for_others
SET LOCAL lock_timeout = '10s';

-- name: stop_counting
-- Counted one by one in one transaction, each of the queued would take longer than the one before. Whoever else
-- writes tasks waits from here on.
ALTER TABLE tasks DISABLE TRIGGER tasks_enter_or_leave;

-- name: stop_numbering
-- The order of what happened before the copy is nobody's any more.
ALTER TABLE task_events DISABLE TRIGGER task_events_in_order;

-- name: forget_counts
DELETE FROM queue_depth;

-- name: count_at_once
INSERT INTO queue_depth (queue, priority, shard, queued)
SELECT queue, priority, 0, count(*) FROM tasks WHERE state = 'queued' GROUP BY queue, priority;

-- name: count_on
ALTER TABLE tasks ENABLE TRIGGER tasks_enter_or_leave;

-- name: number_events_on
ALTER TABLE task_events ENABLE TRIGGER task_events_in_order;

-- name: number_on
-- What is submitted next comes after all that was copied.
SELECT setval(pg_get_serial_sequence('tasks', 'seq'), max(seq)) FROM tasks;
