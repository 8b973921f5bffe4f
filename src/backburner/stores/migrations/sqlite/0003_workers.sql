-- Who works, who keeps house, and what estimates learn from.

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
    seconds      REAL NOT NULL,
    hint_s       REAL,
    PRIMARY KEY (tool_name, ended_at, task_id)
) WITHOUT ROWID;
