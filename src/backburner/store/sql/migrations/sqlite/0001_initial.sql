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
    extra_json       TEXT NOT NULL,
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
    metrics_json     TEXT,
    webhooks_json    TEXT
);

CREATE UNIQUE INDEX tasks_idempotency ON tasks (owner, tool_name, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
CREATE UNIQUE INDEX tasks_external ON tasks (owner, external_id) WHERE external_id IS NOT NULL;

-- Claims. Only claimable tasks are in the index, so it stays small.
CREATE INDEX tasks_ready ON tasks (queue, priority DESC, seq)
    WHERE state = 'queued' AND ready_at IS NULL;
CREATE INDEX tasks_ready_by_share ON tasks (queue, priority, share, seq)
    WHERE state = 'queued' AND ready_at IS NULL;
CREATE INDEX tasks_due ON tasks (ready_at) WHERE ready_at IS NOT NULL;

-- Lists, newest first. The states of unfinished tasks change often, so only one index has them.
CREATE INDEX tasks_by_owner ON tasks (owner, seq);
CREATE INDEX tasks_by_owner_tool ON tasks (owner, tool_name, seq);
CREATE INDEX tasks_by_parent ON tasks (parent_id, seq) WHERE parent_id IS NOT NULL;
CREATE INDEX tasks_by_state ON tasks (state, seq);
CREATE INDEX tasks_finished_by_owner ON tasks (owner, state, seq) WHERE completed_at IS NOT NULL;

-- Expiry and purge.
CREATE INDEX tasks_expiring ON tasks (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX tasks_expired ON tasks (updated_at) WHERE state = 'expired';

-- Finished tasks with uncompressed logs.
CREATE INDEX tasks_with_plain_logs ON tasks (completed_at) WHERE plain_logs = 1;

-- A covering index for statistics over time.
CREATE INDEX tasks_ended ON tasks (completed_at, state, owner, tool_name, queue, submitted_at, started_at)
    WHERE completed_at IS NOT NULL;

-- Heartbeats and progress change often, so they are in the small row of the attempt.
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

-- Completions in order, for metrics. Every inserted event is checked against the conditions, so there are few;
-- the query filters the rest.
CREATE INDEX task_events_endings ON task_events (ts, task_id, seq)
    WHERE from_state <> to_state AND to_state <> 'scheduled' AND to_state <> 'running';

-- The events of all tasks in commit order, up to a limit that the keeper enforces. A deleted event leaves its number.
CREATE TABLE event_order (
    number  INTEGER PRIMARY KEY,
    task_id TEXT NOT NULL,
    seq     INTEGER NOT NULL
);
CREATE TRIGGER task_events_in_order AFTER INSERT ON task_events
BEGIN
    INSERT INTO event_order (task_id, seq) VALUES (NEW.task_id, NEW.seq);
END;

CREATE TABLE task_tags (
    owner TEXT NOT NULL,
    tag   TEXT NOT NULL,
    seq   INTEGER NOT NULL,
    PRIMARY KEY (owner, tag, seq)
) WITHOUT ROWID;
CREATE INDEX task_tags_by_tag ON task_tags (tag, seq);
CREATE INDEX task_tags_by_task ON task_tags (seq);

-- Queued tasks of each queue, counted by triggers.
-- `shard` is always 0 here: only PostgreSQL needs shards.
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

-- Logs, artifacts, checkpoints and questions of tasks.

CREATE TABLE task_logs (
    task_id TEXT NOT NULL,
    seq     INTEGER NOT NULL,
    ts      INTEGER NOT NULL,
    stream  TEXT NOT NULL,
    level   TEXT NOT NULL,
    line    TEXT NOT NULL,
    PRIMARY KEY (task_id, seq)
) WITHOUT ROWID;

-- Older log lines, compressed: zlib over JSON lines.
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

-- Workers, the keeper's lease, and past runtimes for estimates.

CREATE TABLE workers (
    worker_id       TEXT PRIMARY KEY,
    supervisor_id   TEXT NOT NULL,
    host            TEXT NOT NULL,
    queue           TEXT NOT NULL,
    state           TEXT NOT NULL,
    started_at      INTEGER NOT NULL,
    last_heartbeat  INTEGER NOT NULL,
    pid             INTEGER,
    current_task_id TEXT
);
CREATE INDEX workers_by_supervisor ON workers (supervisor_id);

CREATE TABLE keeper (
    only_one   INTEGER PRIMARY KEY CHECK (only_one = 1),
    holder     TEXT NOT NULL,
    expires_at INTEGER NOT NULL
);

CREATE TABLE runtimes (
    tool_name    TEXT NOT NULL,
    ended_at     INTEGER NOT NULL,
    task_id      TEXT NOT NULL,
    inputs_bytes INTEGER NOT NULL,
    inputs_hash  TEXT NOT NULL,
    seconds      REAL NOT NULL,
    hint_s       REAL,
    PRIMARY KEY (tool_name, ended_at, task_id)
) WITHOUT ROWID;

-- Queues and limits.

CREATE TABLE paused_queues (
    queue     TEXT PRIMARY KEY,
    paused_at INTEGER NOT NULL,
    paused_by TEXT NOT NULL
) WITHOUT ROWID;

-- Tasks under concurrency or rate limits; other tasks have no row here. `tool_said` is empty for limits of the
-- operator alone, '=' for limits of the tool, and '=key' for limits of the tool with a concurrency key. A `held` task
-- is outside the ready index: its ready_at is never, or the time when the limit may allow it.
-- Queue, priority and share are copies for the index; they never change.
CREATE TABLE task_limits (
    seq       INTEGER PRIMARY KEY,
    queue     TEXT NOT NULL,
    priority  INTEGER NOT NULL,
    share     TEXT NOT NULL,
    tool_said TEXT NOT NULL,
    held      INTEGER NOT NULL DEFAULT 0,
    waits_for TEXT,
    reason    TEXT
);
CREATE INDEX task_limits_held ON task_limits (waits_for, queue, priority, share, seq) WHERE held = 1;

-- The limits of tools, from the latest submission of each.
CREATE TABLE tool_limits (
    tool_name             TEXT PRIMARY KEY,
    max_running           INTEGER,
    max_starts_per_minute INTEGER,
    max_running_per_key   INTEGER
);

-- Starts of the last minute, for rate limits.
CREATE TABLE limited_starts (
    name    TEXT NOT NULL,
    at      INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    PRIMARY KEY (name, at, seq, attempt)
) WITHOUT ROWID;
CREATE INDEX limited_starts_by_time ON limited_starts (at);

-- Jobs of external queues, one for the next attempt of a task. With a time in `again_at`, the task is submitted
-- again then; `problem` is the error of the queue.
CREATE TABLE hand_outs (
    task_id   TEXT PRIMARY KEY,
    engine    TEXT NOT NULL,
    queue     TEXT NOT NULL,
    attempt   INTEGER NOT NULL,
    job       TEXT NOT NULL,
    handed_at INTEGER NOT NULL,
    ended     INTEGER NOT NULL DEFAULT 0,
    problem   TEXT,
    again_at  INTEGER
) WITHOUT ROWID;
CREATE INDEX hand_outs_by_engine ON hand_outs (engine, task_id);

-- Clients: unanswered calls, timeouts of held calls, and webhooks.

CREATE TABLE open_calls (
    task_id        TEXT PRIMARY KEY,
    owner          TEXT NOT NULL,
    tool_name      TEXT NOT NULL,
    inputs_hash    TEXT NOT NULL,
    attended_until INTEGER NOT NULL,
    given_up       TEXT
) WITHOUT ROWID;
CREATE INDEX open_calls_by_call ON open_calls (owner, tool_name, inputs_hash, task_id);

CREATE TABLE client_time_outs (
    name      TEXT NOT NULL,
    version   TEXT NOT NULL,
    transport TEXT NOT NULL,
    seen_at   INTEGER NOT NULL,
    waited_ms INTEGER NOT NULL,
    silent_ms INTEGER NOT NULL,
    PRIMARY KEY (name, version, transport, seen_at)
) WITHOUT ROWID;

-- Inserted with the end of a task, deleted after delivery. A failed delivery has no due_at.
CREATE TABLE webhook_deliveries (
    delivery_id TEXT PRIMARY KEY,
    task_id     TEXT NOT NULL,
    owner       TEXT NOT NULL,
    url         TEXT NOT NULL,
    endpoint    TEXT NOT NULL,
    body        TEXT NOT NULL,
    created_at  INTEGER NOT NULL,
    due_at      INTEGER,
    attempts    INTEGER NOT NULL DEFAULT 0,
    last_error  TEXT NOT NULL DEFAULT ''
);
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX webhook_deliveries_by_task ON webhook_deliveries (task_id);

-- The key that signs cursors and artifact links.
CREATE TABLE store_secret (secret BLOB NOT NULL);
INSERT INTO store_secret VALUES (randomblob(32));

-- Single-use names, such as one-time links and ended sessions.
CREATE TABLE spent_names (
    name  TEXT NOT NULL PRIMARY KEY,
    until INTEGER NOT NULL
) WITHOUT ROWID;
