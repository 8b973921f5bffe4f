-- What an attempt leaves behind, and what it asks.

CREATE TABLE task_logs (
    task_id TEXT NOT NULL,
    seq     INTEGER NOT NULL,
    ts      INTEGER NOT NULL,
    stream  TEXT NOT NULL,
    level   TEXT NOT NULL,
    line    TEXT NOT NULL,
    PRIMARY KEY (task_id, seq)
) WITHOUT ROWID;

-- Old logs, compressed: zlib over JSON lines.
CREATE TABLE task_log_chunks (
    task_id   TEXT NOT NULL,
    first_seq INTEGER NOT NULL,
    last_seq  INTEGER NOT NULL,
    data      BLOB NOT NULL,
    PRIMARY KEY (task_id, first_seq)
);

CREATE TABLE artifacts (
    artifact_id TEXT PRIMARY KEY,
    task_id     TEXT NOT NULL,
    attempt     INTEGER NOT NULL,
    name        TEXT NOT NULL,
    kind        TEXT NOT NULL,
    size_bytes  INTEGER NOT NULL,
    sha256      TEXT NOT NULL,
    path        TEXT NOT NULL,
    created_at  INTEGER NOT NULL
);
CREATE INDEX artifacts_by_task ON artifacts (task_id, created_at);

CREATE TABLE checkpoints (
    task_id   TEXT PRIMARY KEY,
    attempt   INTEGER NOT NULL,
    ts        INTEGER NOT NULL,
    data_json TEXT NOT NULL
);

CREATE TABLE input_requests (
    task_id      TEXT NOT NULL,
    key          TEXT NOT NULL,
    attempt      INTEGER NOT NULL,
    method       TEXT NOT NULL,
    params_json  TEXT NOT NULL,
    asked_at     INTEGER NOT NULL,
    answered_at  INTEGER,
    action       TEXT,
    content_json TEXT,
    PRIMARY KEY (task_id, key)
) WITHOUT ROWID;
