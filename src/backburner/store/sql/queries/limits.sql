-- Concurrency and rate limits (docs/decisions/0031). Shared by both dialects.

-- fragment: limited
-- NULL for a task without limits.
(SELECT l.tool_said FROM task_limits l WHERE l.seq = tasks.seq) AS tool_said

-- fragment: waits_for
coalesce((SELECT l.reason FROM task_limits l WHERE l.seq = t.seq AND l.held = 1),
         (SELECT h.problem FROM hand_outs h WHERE h.task_id = t.task_id AND t.state = 'queued'),
         {paused}) AS waits_for

-- name: upsert_task_limits
INSERT INTO task_limits (seq, queue, priority, share, tool_said, held, waits_for, reason)
VALUES (:seq, :queue, :priority, :share, :tool_said, :held, :waits_for, :reason)
ON CONFLICT (seq) DO UPDATE SET held = :held, waits_for = :waits_for, reason = :reason;

-- name: upsert_tool_limits
-- Writes and locks only a change.
INSERT INTO tool_limits (tool_name, max_running, max_starts_per_minute, max_running_per_key)
SELECT CAST(:tool_name AS TEXT), CAST(:max_running AS BIGINT), CAST(:max_starts_per_minute AS BIGINT),
       CAST(:max_running_per_key AS BIGINT)
WHERE NOT EXISTS (
    SELECT 1 FROM tool_limits
    WHERE tool_name = :tool_name AND coalesce(max_running, 0) = coalesce(:max_running, 0)
      AND coalesce(max_starts_per_minute, 0) = coalesce(:max_starts_per_minute, 0)
      AND coalesce(max_running_per_key, 0) = coalesce(:max_running_per_key, 0))
ON CONFLICT (tool_name) DO UPDATE SET max_running = excluded.max_running,
    max_starts_per_minute = excluded.max_starts_per_minute, max_running_per_key = excluded.max_running_per_key;

-- name: tool_limits
SELECT * FROM tool_limits;

-- name: running_under_limits
-- Counts leases, at most one per worker, so that there is no counter to go wrong.
SELECT t.owner, t.tool_name, l.tool_said, count(*) AS running
FROM tasks t JOIN task_limits l ON l.seq = t.seq WHERE t.state IN ({leased})
GROUP BY t.owner, t.tool_name, l.tool_said;

-- name: insert_start
INSERT INTO limited_starts (name, at, seq, attempt) VALUES (:name, :at, :seq, :attempt);

-- name: latest_starts
SELECT at FROM limited_starts WHERE name = :name AND at > :since ORDER BY at DESC LIMIT :limit;

-- name: delete_old_starts
DELETE FROM limited_starts WHERE at <= :before;

-- name: hold_task
UPDATE tasks SET ready_at = {never} WHERE seq = :seq;

-- name: last_hold
SELECT waits_for FROM task_limits WHERE seq = :seq;

-- name: release_task
UPDATE tasks SET ready_at = :ready_at WHERE seq = :seq AND state = 'queued';

-- name: clear_hold
UPDATE task_limits SET held = 0 WHERE seq = :seq;

-- name: delete_limits
DELETE FROM task_limits WHERE seq = :seq;

-- These statements skip through the index of held tasks, in a time that does not depend on their number.

-- name: held_limits
WITH RECURSIVE walk (name) AS (
    SELECT min(waits_for) FROM task_limits WHERE held = 1
    UNION ALL
    SELECT (SELECT min(l.waits_for) FROM task_limits l WHERE l.held = 1 AND l.waits_for > walk.name)
    FROM walk WHERE walk.name IS NOT NULL)
SELECT name FROM walk WHERE name IS NOT NULL;

-- name: held_queues
WITH RECURSIVE walk (queue) AS (
    SELECT min(queue) FROM task_limits WHERE held = 1 AND waits_for = :name
    UNION ALL
    SELECT (SELECT min(l.queue) FROM task_limits l
            WHERE l.held = 1 AND l.waits_for = :name AND l.queue > walk.queue)
    FROM walk WHERE walk.queue IS NOT NULL)
SELECT queue FROM walk WHERE queue IS NOT NULL;

-- name: top_held_priority
SELECT priority FROM task_limits WHERE held = 1 AND waits_for = :name AND queue = :queue AND priority < :below
ORDER BY priority DESC LIMIT 1;

-- name: held_shares
-- As ready_shares, for the tasks that a limit holds.
WITH RECURSIVE walk (share) AS (
    SELECT min(share) FROM task_limits
    WHERE held = 1 AND waits_for = :name AND queue = :queue AND priority = :priority
    UNION ALL
    SELECT (SELECT min(l.share) FROM task_limits l
            WHERE l.held = 1 AND l.waits_for = :name AND l.queue = :queue AND l.priority = :priority
              AND l.share > walk.share)
    FROM walk WHERE walk.share IS NOT NULL)
SELECT walk.share AS share,
       (SELECT min(l.seq) FROM task_limits l
        WHERE l.held = 1 AND l.waits_for = :name AND l.queue = :queue AND l.priority = :priority
          AND l.share = walk.share) AS oldest
FROM walk WHERE walk.share IS NOT NULL;

-- name: held_of_share
SELECT seq FROM task_limits
WHERE held = 1 AND waits_for = :name AND queue = :queue AND priority = :priority AND share = :share
ORDER BY seq LIMIT :limit;
