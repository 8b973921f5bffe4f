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
    meta_json        TEXT NOT NULL,
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

-- What changes often (heartbeats, progress) is in the attempt's small row; these two put it beside the task.
CREATE VIEW task_whole AS
    SELECT t.*, a.heartbeat_at, a.progress_json, greatest(t.updated_at, coalesce(a.updated_at, 0)) AS changed_at
    FROM tasks t LEFT JOIN attempts a ON a.task_id = t.task_id AND a.attempt = t.attempt;

CREATE VIEW task_summary AS
    SELECT t.seq, t.task_id, t.owner, t.tool_name, t.target, t.external_id, t.parent_id, t.idempotency_key,
           NULL::text AS inputs_json, t.queue, t.priority, t.tags_json, t.resources_json, t.retry_json, t.meta_json,
           t.traceparent, t.estimate_s, t.ttl_s, t.submitted_at, t.ready_at, t.started_at, t.completed_at,
           t.expires_at, t.timeout_at, t.state, t.attempt, t.failures, t.max_attempts, t.worker_id,
           t.cancel_requested, t.cancel_reason, NULL::text AS result_json, t.error_json, t.metrics_json,
           a.heartbeat_at, a.progress_json, greatest(t.updated_at, coalesce(a.updated_at, 0)) AS changed_at
    FROM tasks t LEFT JOIN attempts a ON a.task_id = t.task_id AND a.attempt = t.attempt;

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

CREATE TABLE task_tags (
    owner TEXT NOT NULL,
    tag   TEXT NOT NULL,
    seq   BIGINT NOT NULL,
    PRIMARY KEY (owner, tag, seq)
);
CREATE INDEX task_tags_by_tag ON task_tags (tag, seq);
CREATE INDEX task_tags_by_task ON task_tags (seq);

-- How many tasks wait in each queue, kept by triggers so that nobody needs to count them.
-- Each backend counts in a shard of its own, so that writers do not queue up behind one row.
CREATE TABLE queue_depth (
    queue    TEXT NOT NULL,
    priority BIGINT NOT NULL,
    shard    BIGINT NOT NULL,
    queued   BIGINT NOT NULL,
    PRIMARY KEY (queue, priority, shard)
);
CREATE FUNCTION count_queued(in_queue text, at_priority bigint, change bigint) RETURNS void LANGUAGE sql AS $$
    INSERT INTO queue_depth VALUES (in_queue, at_priority, pg_backend_pid() % 32, change)
        ON CONFLICT (queue, priority, shard) DO UPDATE SET queued = queue_depth.queued + change;
$$;
CREATE FUNCTION keep_queue_depth() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' AND OLD.state = 'queued' THEN
        PERFORM count_queued(OLD.queue, OLD.priority, -1);
    END IF;
    IF TG_OP <> 'DELETE' AND NEW.state = 'queued' THEN
        PERFORM count_queued(NEW.queue, NEW.priority, 1);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER tasks_enter_or_leave AFTER INSERT OR DELETE ON tasks
    FOR EACH ROW EXECUTE FUNCTION keep_queue_depth();
CREATE TRIGGER tasks_change_state AFTER UPDATE OF state ON tasks
    FOR EACH ROW WHEN (OLD.state IS DISTINCT FROM NEW.state) EXECUTE FUNCTION keep_queue_depth();

-- Signs cursors and artifact links.
CREATE TABLE store_secret (secret BYTEA NOT NULL);
INSERT INTO store_secret VALUES (sha256((gen_random_uuid()::text || gen_random_uuid()::text)::bytea));

-- Names that were used up: one-time links, and sessions that were signed out. Until then each is remembered.
CREATE TABLE spent_names (
    name  TEXT NOT NULL PRIMARY KEY,
    until BIGINT NOT NULL
);
