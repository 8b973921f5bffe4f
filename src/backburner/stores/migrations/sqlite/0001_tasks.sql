-- Tasks, their attempts and their audit trail.

CREATE TABLE tasks (
    seq              INTEGER PRIMARY KEY,
    task_id          TEXT NOT NULL UNIQUE,
    owner            TEXT NOT NULL,
    tool_name        TEXT NOT NULL,
    target           TEXT NOT NULL,
    external_id      TEXT,
    parent_id        TEXT,
    idempotency_key  TEXT,
    inputs_json      TEXT,
    inputs_hash      TEXT NOT NULL,
    inputs_bytes     INTEGER NOT NULL,
    queue            TEXT NOT NULL,
    priority         INTEGER NOT NULL,
    share            TEXT NOT NULL,
    tags_json        TEXT NOT NULL,
    resources_json   TEXT NOT NULL,
    retry_json       TEXT NOT NULL,
    meta_json        TEXT NOT NULL,
    traceparent      TEXT,
    hint_s           REAL,
    estimate_s       REAL,
    ttl_s            REAL,
    submitted_at     INTEGER NOT NULL,
    ready_at         INTEGER,
    started_at       INTEGER,
    updated_at       INTEGER NOT NULL,
    completed_at     INTEGER,
    expires_at       INTEGER,
    timeout_at       INTEGER,
    state            TEXT NOT NULL CHECK (state IN (
                         'queued', 'scheduled', 'running', 'input_required', 'cancel_requested', 'cancelling',
                         'succeeded', 'failed', 'cancelled', 'timed_out', 'expired')),
    attempt          INTEGER NOT NULL DEFAULT 0,
    failures         INTEGER NOT NULL DEFAULT 0,
    max_attempts     INTEGER NOT NULL,
    worker_id        TEXT,
    cancel_requested INTEGER NOT NULL DEFAULT 0,
    cancel_reason    TEXT,
    plain_logs       INTEGER NOT NULL DEFAULT 0,
    result_json      TEXT,
    error_json       TEXT,
    metrics_json     TEXT
);

CREATE UNIQUE INDEX tasks_idempotency ON tasks (owner, tool_name, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
CREATE UNIQUE INDEX tasks_external ON tasks (owner, external_id) WHERE external_id IS NOT NULL;

-- Claiming: only what can be claimed now is here, so it stays small.
CREATE INDEX tasks_ready ON tasks (queue, priority DESC, seq)
    WHERE state = 'queued' AND ready_at IS NULL;
CREATE INDEX tasks_ready_by_share ON tasks (queue, priority, share, seq)
    WHERE state = 'queued' AND ready_at IS NULL;
CREATE INDEX tasks_due ON tasks (ready_at) WHERE ready_at IS NOT NULL;

-- Listing, newest first. The states of unfinished tasks change often, so only one index has them.
CREATE INDEX tasks_by_owner ON tasks (owner, seq);
CREATE INDEX tasks_by_owner_tool ON tasks (owner, tool_name, seq);
CREATE INDEX tasks_by_parent ON tasks (parent_id, seq) WHERE parent_id IS NOT NULL;
CREATE INDEX tasks_by_state ON tasks (state, seq);
CREATE INDEX tasks_finished_by_owner ON tasks (owner, state, seq) WHERE completed_at IS NOT NULL;

-- Expiry, then purge.
CREATE INDEX tasks_expiring ON tasks (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX tasks_expired ON tasks (updated_at) WHERE state = 'expired';

-- Finished tasks whose logs are not compressed yet.
CREATE INDEX tasks_with_plain_logs ON tasks (completed_at) WHERE plain_logs = 1;

CREATE TABLE attempts (
    task_id       TEXT NOT NULL,
    attempt       INTEGER NOT NULL,
    worker_id     TEXT NOT NULL,
    claimed_at    INTEGER NOT NULL,
    started_at    INTEGER,
    heartbeat_at  INTEGER NOT NULL,
    updated_at    INTEGER NOT NULL,
    ended_at      INTEGER,
    pid           INTEGER,
    progress_json TEXT,
    outcome       TEXT,
    error_json    TEXT,
    PRIMARY KEY (task_id, attempt)
) WITHOUT ROWID;

-- What changes often (heartbeats, progress) is in the attempt's small row; these two put it beside the task.
CREATE VIEW task_whole AS
    SELECT t.*, a.heartbeat_at, a.progress_json, max(t.updated_at, coalesce(a.updated_at, 0)) AS changed_at
    FROM tasks t LEFT JOIN attempts a ON a.task_id = t.task_id AND a.attempt = t.attempt;

CREATE VIEW task_summary AS
    SELECT t.seq, t.task_id, t.owner, t.tool_name, t.target, t.external_id, t.parent_id, t.idempotency_key,
           NULL AS inputs_json, t.queue, t.priority, t.tags_json, t.resources_json, t.retry_json, t.meta_json,
           t.traceparent, t.estimate_s, t.ttl_s, t.submitted_at, t.ready_at, t.started_at, t.completed_at,
           t.expires_at, t.timeout_at, t.state, t.attempt, t.failures, t.max_attempts, t.worker_id,
           t.cancel_requested, t.cancel_reason, NULL AS result_json, t.error_json, t.metrics_json,
           a.heartbeat_at, a.progress_json, max(t.updated_at, coalesce(a.updated_at, 0)) AS changed_at
    FROM tasks t LEFT JOIN attempts a ON a.task_id = t.task_id AND a.attempt = t.attempt;

CREATE TABLE task_events (
    task_id    TEXT NOT NULL,
    seq        INTEGER NOT NULL,
    ts         INTEGER NOT NULL,
    attempt    INTEGER NOT NULL,
    signal     TEXT NOT NULL,
    from_state TEXT,
    to_state   TEXT NOT NULL,
    worker_id  TEXT,
    detail_json TEXT,
    PRIMARY KEY (task_id, seq)
) WITHOUT ROWID;
CREATE TRIGGER task_events_append_only BEFORE UPDATE ON task_events
BEGIN
    SELECT RAISE(ABORT, 'task_events is append-only');
END;

CREATE TABLE task_tags (
    owner TEXT NOT NULL,
    tag   TEXT NOT NULL,
    seq   INTEGER NOT NULL,
    PRIMARY KEY (owner, tag, seq)
) WITHOUT ROWID;
CREATE INDEX task_tags_by_tag ON task_tags (tag, seq);
CREATE INDEX task_tags_by_task ON task_tags (seq);

-- How many tasks wait in each queue, kept by triggers so that nobody needs to count them.
-- `shard` is for PostgreSQL, where writers must not queue up behind one row.
CREATE TABLE queue_depth (
    queue    TEXT NOT NULL,
    priority INTEGER NOT NULL,
    shard    INTEGER NOT NULL,
    queued   INTEGER NOT NULL,
    PRIMARY KEY (queue, priority, shard)
) WITHOUT ROWID;
CREATE TRIGGER tasks_enter_queue AFTER INSERT ON tasks WHEN NEW.state = 'queued'
BEGIN
    INSERT INTO queue_depth VALUES (NEW.queue, NEW.priority, 0, 1)
        ON CONFLICT (queue, priority, shard) DO UPDATE SET queued = queued + 1;
END;
CREATE TRIGGER tasks_return_to_queue AFTER UPDATE OF state ON tasks
    WHEN NEW.state = 'queued' AND OLD.state <> 'queued'
BEGIN
    INSERT INTO queue_depth VALUES (NEW.queue, NEW.priority, 0, 1)
        ON CONFLICT (queue, priority, shard) DO UPDATE SET queued = queued + 1;
END;
CREATE TRIGGER tasks_leave_queue AFTER UPDATE OF state ON tasks
    WHEN NEW.state <> 'queued' AND OLD.state = 'queued'
BEGIN
    UPDATE queue_depth SET queued = queued - 1 WHERE queue = OLD.queue AND priority = OLD.priority AND shard = 0;
END;
CREATE TRIGGER tasks_removed_from_queue AFTER DELETE ON tasks WHEN OLD.state = 'queued'
BEGIN
    UPDATE queue_depth SET queued = queued - 1 WHERE queue = OLD.queue AND priority = OLD.priority AND shard = 0;
END;

-- Signs cursors and artifact links.
CREATE TABLE store_secret (secret BLOB NOT NULL);
INSERT INTO store_secret VALUES (randomblob(32));

-- Names that were used up: one-time links, and sessions that were signed out. Until then each is remembered.
CREATE TABLE spent_names (
    name  TEXT NOT NULL PRIMARY KEY,
    until INTEGER NOT NULL
) WITHOUT ROWID;
