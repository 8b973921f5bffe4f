-- Logs, artifacts, checkpoints and questions. Repeated reports have no effect. Shared by both dialects.

-- name: insert_log
INSERT INTO task_logs (task_id, seq, ts, stream, level, line)
VALUES (:task_id, :seq, :ts, :stream, :level, :line)
ON CONFLICT DO NOTHING;

-- name: plain_logs
SELECT seq, ts, stream, level, line FROM task_logs
WHERE task_id = :task_id AND seq > :after ORDER BY seq LIMIT :limit;

-- name: last_plain_log
SELECT seq AS last_seq FROM task_logs WHERE task_id = :task_id ORDER BY seq DESC LIMIT 1;

-- name: delete_logs_up_to
DELETE FROM task_logs WHERE task_id = :task_id AND seq <= :seq;

-- name: delete_logs
DELETE FROM task_logs WHERE task_id = :task_id;

-- name: log_chunks
-- Chunks do not overlap, so the first line of a chunk finds the one with line `after`.
SELECT last_seq, data FROM task_log_chunks
WHERE task_id = :task_id AND last_seq > :after AND first_seq >= coalesce(
    (SELECT max(first_seq) FROM task_log_chunks WHERE task_id = :task_id AND first_seq <= :after), 0)
ORDER BY first_seq LIMIT :limit;

-- name: last_packed_log
SELECT last_seq FROM task_log_chunks WHERE task_id = :task_id ORDER BY first_seq DESC LIMIT 1;

-- name: insert_log_chunk
INSERT INTO task_log_chunks (task_id, first_seq, last_seq, data) VALUES (:task_id, :first_seq, :last_seq, :data);

-- name: delete_log_chunks
DELETE FROM task_log_chunks WHERE task_id = :task_id;

-- name: log_bytes
-- The approximate size of a log.
SELECT (SELECT coalesce(sum(length(data)), 0) FROM task_log_chunks WHERE task_id = :task_id)
     + (SELECT 100 * count(*) FROM task_logs WHERE task_id = :task_id) AS bytes;

-- name: insert_artifact
INSERT INTO artifacts (artifact_id, task_id, attempt, name, kind, size_bytes, sha256, path, created_at)
VALUES (:artifact_id, :task_id, :attempt, :name, :kind, :size_bytes, :sha256, :path, :created_at)
ON CONFLICT DO NOTHING;

-- name: artifacts
SELECT * FROM artifacts WHERE task_id = :task_id ORDER BY created_at, artifact_id;

-- name: artifact
SELECT * FROM artifacts WHERE artifact_id = :artifact_id;

-- name: delete_artifacts
DELETE FROM artifacts WHERE task_id = :task_id;

-- name: upsert_checkpoint
INSERT INTO checkpoints (task_id, attempt, ts, data_json) VALUES (:task_id, :attempt, :ts, :data_json)
ON CONFLICT (task_id) DO UPDATE SET attempt = :attempt, ts = :ts, data_json = :data_json;

-- name: delete_checkpoint
DELETE FROM checkpoints WHERE task_id = :task_id;

-- name: insert_input_request
INSERT INTO input_requests (task_id, key, attempt, method, params_json, asked_at)
VALUES (:task_id, :key, :attempt, :method, :params_json, :asked_at)
ON CONFLICT DO NOTHING;

-- name: input_requests
SELECT * FROM input_requests WHERE task_id = :task_id ORDER BY asked_at, key;

-- name: answer_input_request
UPDATE input_requests SET answered_at = :now, action = :action, content_json = :content_json
WHERE task_id = :task_id AND key = :key AND attempt = :attempt AND answered_at IS NULL
RETURNING key;

-- name: open_questions
SELECT count(*) AS open FROM input_requests
WHERE task_id = :task_id AND attempt = :attempt AND answered_at IS NULL;

-- name: delete_input_requests
DELETE FROM input_requests WHERE task_id = :task_id;
