-- Copying a store into another: whole tables. Runs on both.

-- template: count_rows
SELECT count(*) AS rows FROM {table};

-- template: read_rows
SELECT {columns} FROM {table};

-- template: empty_table
DELETE FROM {table};

-- name: waiting_outside
-- Given to a queue outside, and not begun there.
SELECT h.engine, count(*) AS jobs FROM hand_outs h JOIN tasks t ON t.task_id = h.task_id
WHERE h.again_at IS NULL AND t.state = 'queued' AND t.attempt < h.attempt GROUP BY h.engine;
