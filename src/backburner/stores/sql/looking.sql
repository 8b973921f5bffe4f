-- What is looked at from outside: the order of events, what ended when, paused queues. Runs on both.

-- fragment: not_paused
NOT EXISTS (SELECT 1 FROM paused_queues p WHERE p.queue = :queue)

-- fragment: paused
-- Why a queued task waits, if its queue is paused.
(SELECT 'queue ' || p.queue || ' is paused' FROM paused_queues p WHERE p.queue = t.queue AND t.state = 'queued')

-- name: pause_queue
INSERT INTO paused_queues (queue, paused_at, paused_by) VALUES (:queue, :now, :by) ON CONFLICT DO NOTHING;

-- name: resume_queue
DELETE FROM paused_queues WHERE queue = :queue;

-- name: paused_queues
SELECT queue, paused_at, paused_by FROM paused_queues ORDER BY queue;

-- name: forget_event_order
DELETE FROM event_order WHERE number <= (SELECT max(number) FROM event_order) - :keep;

-- name: ended
-- How many tasks ended in each stretch of time, by state and by how long they waited and ran.
SELECT (completed_at - :since) / :every_ms AS stretch, state,
       {wait_class} AS wait_class, {run_class} AS run_class, count(*) AS tasks
FROM tasks
WHERE completed_at >= :since AND completed_at < :until
  AND (CAST(:owner AS TEXT) IS NULL OR owner = :owner)
  AND (CAST(:tool_name AS TEXT) IS NULL OR tool_name = :tool_name)
  AND (CAST(:queue AS TEXT) IS NULL OR queue = :queue)
GROUP BY 1, 2, 3, 4 ORDER BY 1;
