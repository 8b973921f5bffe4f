-- What an attempt leaves behind, and what it asks.

CREATE TABLE task_logs (
    task_id TEXT NOT NULL,
    seq     BIGINT NOT NULL,
    ts      BIGINT NOT NULL,
    stream  TEXT NOT NULL,
    level   TEXT NOT NULL,
    line    TEXT NOT NULL,
    PRIMARY KEY (task_id, seq)
);

-- Old logs, compressed: zlib over JSON lines.
CREATE TABLE task_log_chunks (
    task_id   TEXT NOT NULL,
    first_seq BIGINT NOT NULL,
    last_seq  BIGINT NOT NULL,
    data      BYTEA NOT NULL,
    PRIMARY KEY (task_id, first_seq)
);

CREATE TABLE artifacts (
    artifact_id TEXT PRIMARY KEY,
    task_id     TEXT NOT NULL,
    attempt     BIGINT NOT NULL,
    name        TEXT NOT NULL,
    kind        TEXT NOT NULL,
    size_bytes  BIGINT NOT NULL,
    sha256      TEXT NOT NULL,
    path        TEXT NOT NULL,
    created_at  BIGINT NOT NULL
);
CREATE INDEX artifacts_by_task ON artifacts (task_id, created_at);

CREATE TABLE checkpoints (
    task_id   TEXT PRIMARY KEY,
    attempt   BIGINT NOT NULL,
    ts        BIGINT NOT NULL,
    data_json TEXT NOT NULL
);

CREATE TABLE input_requests (
    task_id      TEXT NOT NULL,
    key          TEXT NOT NULL,
    attempt      BIGINT NOT NULL,
    method       TEXT NOT NULL,
    params_json  TEXT NOT NULL,
    asked_at     BIGINT NOT NULL,
    answered_at  BIGINT,
    action       TEXT,
    content_json TEXT,
    PRIMARY KEY (task_id, key)
);
