-- What has come to an end, for metrics. Runs on both.

-- name: endings
-- The first conditions are those of its index, so that only what ended since the last look is read. A note in a trail
-- moves nothing, so the time when the task was queued is that of the last line that moved it there.
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
