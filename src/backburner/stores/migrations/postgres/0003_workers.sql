-- Who works, who keeps house, and what estimates learn from.

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
    seconds      DOUBLE PRECISION NOT NULL,
    hint_s       DOUBLE PRECISION,
    PRIMARY KEY (tool_name, ended_at, task_id)
);
