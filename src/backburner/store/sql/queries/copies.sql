-- Copies of whole tables. Shared by both dialects.

-- template: count_rows
SELECT count(*) AS rows FROM {table};

-- template: read_rows
SELECT {columns} FROM {table};

-- template: empty_table
DELETE FROM {table};

-- name: waiting_outside
-- Tasks with an external job that has not begun.
SELECT h.engine, count(*) AS jobs FROM hand_outs h JOIN tasks t ON t.task_id = h.task_id
WHERE h.again_at IS NULL AND t.state = 'queued' AND t.attempt < h.attempt GROUP BY h.engine;
