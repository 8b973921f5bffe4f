-- Tasks, their attempts and their audit trail.

CREATE TABLE tasks (
    seq              BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task_id          TEXT NOT NULL UNIQUE,
    owner            TEXT NOT NULL,
    tool_name        TEXT NOT NULL,
    target           TEXT NOT NULL,
    external_id      TEXT,
    parent_id        TEXT,
    idempotency_key  TEXT,
    inputs_json      TEXT,
    inputs_hash      TEXT NOT NULL,
    inputs_bytes     BIGINT NOT NULL,
    queue            TEXT NOT NULL,
    priority         BIGINT NOT NULL,
    share            TEXT NOT NULL,
    tags_json        TEXT NOT NULL,
    resources_json   TEXT NOT NULL,
    retry_json       TEXT NOT NULL,
    extra_json       TEXT NOT NULL,
    traceparent      TEXT,
    hint_s           DOUBLE PRECISION,
    estimate_s       DOUBLE PRECISION,
    ttl_s            DOUBLE PRECISION,
    submitted_at     BIGINT NOT NULL,
    ready_at         BIGINT,
    started_at       BIGINT,
    updated_at       BIGINT NOT NULL,
    completed_at     BIGINT,
    expires_at       BIGINT,
    timeout_at       BIGINT,
    state            TEXT NOT NULL CHECK (state IN (
                         'queued', 'scheduled', 'running', 'input_required', 'cancel_requested', 'cancelling',
                         'succeeded', 'failed', 'cancelled', 'timed_out', 'expired')),
    attempt          BIGINT NOT NULL DEFAULT 0,
    failures         BIGINT NOT NULL DEFAULT 0,
    max_attempts     BIGINT NOT NULL,
    worker_id        TEXT,
    cancel_requested BIGINT NOT NULL DEFAULT 0,
    cancel_reason    TEXT,
    plain_logs       BIGINT NOT NULL DEFAULT 0,
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
    attempt       BIGINT NOT NULL,
    worker_id     TEXT NOT NULL,
    claimed_at    BIGINT NOT NULL,
    started_at    BIGINT,
    heartbeat_at  BIGINT NOT NULL,
    updated_at    BIGINT NOT NULL,
    ended_at      BIGINT,
    pid           BIGINT,
    progress_json TEXT,
    outcome       TEXT,
    error_json    TEXT,
    PRIMARY KEY (task_id, attempt)
);

CREATE TABLE task_events (
    task_id    TEXT NOT NULL,
    seq        BIGINT NOT NULL,
    ts         BIGINT NOT NULL,
    attempt    BIGINT NOT NULL,
    signal     TEXT NOT NULL,
    from_state TEXT,
    to_state   TEXT NOT NULL,
    worker_id  TEXT,
    detail_json TEXT,
    PRIMARY KEY (task_id, seq)
);
CREATE FUNCTION task_events_are_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'task_events is append-only';
END $$;
CREATE TRIGGER task_events_append_only BEFORE UPDATE ON task_events
    FOR EACH ROW EXECUTE FUNCTION task_events_are_append_only();

-- Completions in order, for metrics. Every inserted event is checked against the conditions, so there are few;
-- the query filters the rest.
CREATE INDEX task_events_endings ON task_events (ts, task_id, seq)
    WHERE from_state <> to_state AND to_state <> 'scheduled' AND to_state <> 'running';

-- The events of all tasks, up to a limit that the keeper enforces. Transactions may commit in another order than they
-- take numbers, so readers go by transaction id, up to the first open transaction. A deleted event leaves its number.
CREATE TABLE event_order (
    txid    XID8 NOT NULL DEFAULT pg_current_xact_id(),
    number  BIGINT GENERATED BY DEFAULT AS IDENTITY,
    task_id TEXT NOT NULL,
    seq     BIGINT NOT NULL,
    PRIMARY KEY (txid, number)
);
CREATE INDEX event_order_by_number ON event_order (number);
CREATE FUNCTION put_event_in_order() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO event_order (task_id, seq) VALUES (NEW.task_id, NEW.seq);
    RETURN NULL;
END $$;
CREATE TRIGGER task_events_in_order AFTER INSERT ON task_events
    FOR EACH ROW EXECUTE FUNCTION put_event_in_order();

CREATE TABLE task_tags (
    owner TEXT NOT NULL,
    tag   TEXT NOT NULL,
    seq   BIGINT NOT NULL,
    PRIMARY KEY (owner, tag, seq)
);
CREATE INDEX task_tags_by_tag ON task_tags (tag, seq);
CREATE INDEX task_tags_by_task ON task_tags (seq);

-- Queued tasks of each queue, counted by triggers.
-- Each backend counts in its own shard, so that writers do not wait for one row.
CREATE TABLE queue_depth (
    queue    TEXT NOT NULL,
    priority BIGINT NOT NULL,
    shard    BIGINT NOT NULL,
    queued   BIGINT NOT NULL,
    PRIMARY KEY (queue, priority, shard)
);
CREATE FUNCTION keep_queue_depth() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' AND OLD.state = 'queued' THEN
        INSERT INTO queue_depth VALUES (OLD.queue, OLD.priority, mod(pg_backend_pid(), 32), -1)
            ON CONFLICT (queue, priority, shard) DO UPDATE SET queued = queue_depth.queued - 1;
    END IF;
    IF TG_OP <> 'DELETE' AND NEW.state = 'queued' THEN
        INSERT INTO queue_depth VALUES (NEW.queue, NEW.priority, mod(pg_backend_pid(), 32), 1)
            ON CONFLICT (queue, priority, shard) DO UPDATE SET queued = queue_depth.queued + 1;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER tasks_enter_or_leave AFTER INSERT OR DELETE ON tasks
    FOR EACH ROW EXECUTE FUNCTION keep_queue_depth();
CREATE TRIGGER tasks_change_state AFTER UPDATE OF state ON tasks
    FOR EACH ROW WHEN (OLD.state IS DISTINCT FROM NEW.state) EXECUTE FUNCTION keep_queue_depth();

-- Logs, artifacts, checkpoints and questions of tasks.

CREATE TABLE task_logs (
    task_id TEXT NOT NULL,
    seq     BIGINT NOT NULL,
    ts      BIGINT NOT NULL,
    stream  TEXT NOT NULL,
    level   TEXT NOT NULL,
    line    TEXT NOT NULL,
    PRIMARY KEY (task_id, seq)
);

-- Older log lines, compressed: zlib over JSON lines.
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

-- Workers, the keeper's lease, and past runtimes for estimates.

CREATE TABLE workers (
    worker_id       TEXT PRIMARY KEY,
    supervisor_id   TEXT NOT NULL,
    host            TEXT NOT NULL,
    queue           TEXT NOT NULL,
    state           TEXT NOT NULL,
    started_at      BIGINT NOT NULL,
    last_heartbeat  BIGINT NOT NULL,
    pid             BIGINT,
    current_task_id TEXT
);
CREATE INDEX workers_by_supervisor ON workers (supervisor_id);

CREATE TABLE keeper (
    only_one   BIGINT PRIMARY KEY CHECK (only_one = 1),
    holder     TEXT NOT NULL,
    expires_at BIGINT NOT NULL
);

CREATE TABLE runtimes (
    tool_name    TEXT NOT NULL,
    ended_at     BIGINT NOT NULL,
    task_id      TEXT NOT NULL,
    inputs_bytes BIGINT NOT NULL,
    inputs_hash  TEXT NOT NULL,
    seconds      DOUBLE PRECISION NOT NULL,
    hint_s       DOUBLE PRECISION,
    PRIMARY KEY (tool_name, ended_at, task_id)
);

-- Queues and limits.

CREATE TABLE paused_queues (
    queue     TEXT PRIMARY KEY,
    paused_at BIGINT NOT NULL,
    paused_by TEXT NOT NULL
);

-- Tasks under concurrency or rate limits; other tasks have no row here. `tool_said` is empty for limits of the
-- operator alone, '=' for limits of the tool, and '=key' for limits of the tool with a concurrency key. A `held` task
-- is outside the ready index: its ready_at is never, or the time when the limit may allow it.
-- Queue, priority and share are copies for the index; they never change.
CREATE TABLE task_limits (
    seq       BIGINT PRIMARY KEY,
    queue     TEXT NOT NULL,
    priority  BIGINT NOT NULL,
    share     TEXT NOT NULL,
    tool_said TEXT NOT NULL,
    held      BIGINT NOT NULL DEFAULT 0,
    waits_for TEXT,
    reason    TEXT
);
CREATE INDEX task_limits_held ON task_limits (waits_for, queue, priority, share, seq) WHERE held = 1;

-- The limits of tools, from the latest submission of each.
CREATE TABLE tool_limits (
    tool_name             TEXT PRIMARY KEY,
    max_running           BIGINT,
    max_starts_per_minute BIGINT,
    max_running_per_key   BIGINT
);

-- Starts of the last minute, for rate limits.
CREATE TABLE limited_starts (
    name    TEXT NOT NULL,
    at      BIGINT NOT NULL,
    seq     BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    PRIMARY KEY (name, at, seq, attempt)
);
CREATE INDEX limited_starts_by_time ON limited_starts (at);

-- Jobs of external queues, one for the next attempt of a task. With a time in `again_at`, the task is submitted
-- again then; `problem` is the error of the queue.
CREATE TABLE hand_outs (
    task_id   TEXT PRIMARY KEY,
    engine    TEXT NOT NULL,
    queue     TEXT NOT NULL,
    attempt   BIGINT NOT NULL,
    job       TEXT NOT NULL,
    handed_at BIGINT NOT NULL,
    ended     BIGINT NOT NULL DEFAULT 0,
    problem   TEXT,
    again_at  BIGINT
);
CREATE INDEX hand_outs_by_engine ON hand_outs (engine, task_id);

-- Clients: unanswered calls, timeouts of held calls, and webhooks.

CREATE TABLE open_calls (
    task_id        TEXT PRIMARY KEY,
    owner          TEXT NOT NULL,
    tool_name      TEXT NOT NULL,
    inputs_hash    TEXT NOT NULL,
    attended_until BIGINT NOT NULL,
    given_up       TEXT
);
CREATE INDEX open_calls_by_call ON open_calls (owner, tool_name, inputs_hash, task_id);

CREATE TABLE client_time_outs (
    name      TEXT NOT NULL,
    version   TEXT NOT NULL,
    transport TEXT NOT NULL,
    seen_at   BIGINT NOT NULL,
    waited_ms BIGINT NOT NULL,
    silent_ms BIGINT NOT NULL,
    PRIMARY KEY (name, version, transport, seen_at)
);

-- Inserted with the end of a task, deleted after delivery. A failed delivery has no due_at.
CREATE TABLE webhook_deliveries (
    delivery_id TEXT PRIMARY KEY,
    task_id     TEXT NOT NULL,
    owner       TEXT NOT NULL,
    url         TEXT NOT NULL,
    endpoint    TEXT NOT NULL,
    body        TEXT NOT NULL,
    created_at  BIGINT NOT NULL,
    due_at      BIGINT,
    attempts    BIGINT NOT NULL DEFAULT 0,
    last_error  TEXT NOT NULL DEFAULT ''
);
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX webhook_deliveries_by_task ON webhook_deliveries (task_id);

-- The key that signs cursors and artifact links.
CREATE TABLE store_secret (secret BYTEA NOT NULL);
INSERT INTO store_secret VALUES (sha256((gen_random_uuid()::text || gen_random_uuid()::text)::bytea));

-- Single-use names, such as one-time links and ended sessions.
CREATE TABLE spent_names (
    name  TEXT NOT NULL PRIMARY KEY,
    until BIGINT NOT NULL
);
