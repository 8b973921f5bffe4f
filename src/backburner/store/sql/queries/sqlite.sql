-- Statements of SQLite.

-- name: ready_tasks
SELECT *, {limited} FROM tasks WHERE queue = :queue AND state = 'queued' AND ready_at IS NULL AND {not_paused}
ORDER BY priority DESC, seq LIMIT :limit;

-- name: ready_task
SELECT *, {limited} FROM tasks WHERE task_id = :task_id AND state = 'queued' AND ready_at IS NULL;

-- name: ready_of_share
SELECT *, {limited} FROM tasks WHERE queue = :queue AND priority = :priority AND share = :share
  AND state = 'queued' AND ready_at IS NULL
ORDER BY seq LIMIT :limit;

-- name: expired_before
-- Without the hint, SQLite scans all expired tasks in tasks_by_state.
SELECT task_id, seq, webhooks_json FROM tasks INDEXED BY tasks_expired
WHERE state = 'expired' AND updated_at < :before ORDER BY updated_at LIMIT :limit;

-- name: task_heads
-- The ids are a JSON array, so that one statement serves any number of them.
SELECT task_id, owner, state, attempt, updated_at FROM tasks
WHERE task_id IN (SELECT value FROM json_each(:task_ids));

-- fragment: has_text
-- Ignores the case of ASCII letters.
(t.tool_name LIKE :text ESCAPE '!' OR t.tags_json LIKE :text ESCAPE '!'
 OR t.external_id LIKE :text ESCAPE '!' OR t.error_json LIKE :text ESCAPE '!')

-- name: lock_task
SELECT {locked} FROM tasks WHERE task_id = :task_id;

-- name: move_retries
UPDATE tasks SET ready_at = ready_at + :by_ms, updated_at = updated_at + :by_ms
WHERE ready_at IS NOT NULL AND ready_at < {never};

-- name: move_starts
UPDATE limited_starts SET at = at + :by_ms;

-- name: move_expiry
UPDATE tasks SET expires_at = expires_at + :by_ms WHERE expires_at IS NOT NULL;

-- name: list_state
SELECT {listed}, {joined} FROM tasks t {attempts} WHERE t.state = :state
{page}

-- name: list_owner
SELECT {listed}, {joined} FROM tasks t {attempts} WHERE t.owner = :owner
{page}

-- name: list_owner_finished
SELECT {listed}, {joined} FROM tasks t {attempts} WHERE t.owner = :owner AND t.state = :state AND t.completed_at IS NOT NULL
{page}

-- name: list_owner_tool
SELECT {listed}, {joined} FROM tasks t {attempts} WHERE t.owner = :owner AND t.tool_name = :tool_name
{page}

-- name: feed
SELECT 0 AS txid, o.number, e.*, t.owner, t.tool_name, t.queue
FROM (SELECT * FROM event_order WHERE number > :number ORDER BY number LIMIT :limit) o
LEFT JOIN task_events e ON e.task_id = o.task_id AND e.seq = o.seq
LEFT JOIN tasks t ON t.task_id = e.task_id
ORDER BY o.number;

-- name: first_event
SELECT 0 AS txid, number FROM event_order ORDER BY number LIMIT 1;

-- name: feed_end
SELECT 0 AS txid, coalesce(max(number), 0) AS number FROM event_order;

-- name: tables
SELECT name FROM sqlite_master WHERE type = 'table' AND substr(name, 1, 7) <> 'sqlite_' ORDER BY name;

-- name: columns
SELECT name FROM pragma_table_info(:of_table) ORDER BY cid;

-- template: write_rows
INSERT INTO {table} ({columns}) VALUES ({places});
