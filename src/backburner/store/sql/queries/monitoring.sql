-- Event feed, completions and paused queues. Shared by both dialects.

-- fragment: not_paused
NOT EXISTS (SELECT 1 FROM paused_queues p WHERE p.queue = :queue)

-- fragment: paused
-- The reason why a task of a paused queue waits.
(SELECT 'queue ' || p.queue || ' is paused' FROM paused_queues p WHERE p.queue = t.queue AND t.state = 'queued')

-- name: pause_queue
INSERT INTO paused_queues (queue, paused_at, paused_by) VALUES (:queue, :now, :by) ON CONFLICT DO NOTHING;

-- name: resume_queue
DELETE FROM paused_queues WHERE queue = :queue;

-- name: paused_queues
SELECT queue, paused_at, paused_by FROM paused_queues ORDER BY queue;

-- name: trim_event_order
DELETE FROM event_order WHERE number <= (SELECT max(number) FROM event_order) - :keep;

-- name: completion_counts
-- Numbers of tasks that ended in each period, by state and by classes of wait and run time.
SELECT (completed_at - :since) / :every_ms AS stretch, state,
       {wait_class} AS wait_class, {run_class} AS run_class, count(*) AS tasks
FROM tasks
WHERE completed_at >= :since AND completed_at < :until
  AND (CAST(:owner AS TEXT) IS NULL OR owner = :owner)
  AND (CAST(:tool_name AS TEXT) IS NULL OR tool_name = :tool_name)
  AND (CAST(:queue AS TEXT) IS NULL OR queue = :queue)
GROUP BY 1, 2, 3, 4 ORDER BY 1;

-- name: completions
-- The first conditions are those of the index. The time when a task was queued is that of the last event that changed
-- its state to queued.
SELECT e.ts, e.task_id, e.seq, e.signal, e.from_state, e.to_state, e.detail_json, t.tool_name, t.queue, a.started_at,
       (SELECT max(q.ts) FROM task_events q
        WHERE q.task_id = e.task_id AND q.seq < e.seq AND q.to_state = 'queued'
          AND (q.from_state IS NULL OR q.from_state <> 'queued')) AS queued_at
FROM task_events e
JOIN tasks t ON t.task_id = e.task_id
LEFT JOIN attempts a ON a.task_id = e.task_id AND a.attempt = e.attempt
WHERE e.from_state <> e.to_state AND e.to_state <> 'scheduled' AND e.to_state <> 'running'
  AND e.from_state IN ({unfinished}) AND e.to_state IN ({no_longer_leased})
  AND (e.ts, e.task_id, e.seq) > (:after_ts, :after_task, :after_seq) AND e.ts <= :until
ORDER BY e.ts, e.task_id, e.seq LIMIT :limit;
