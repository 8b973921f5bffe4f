-- Limits on how many tasks run at a time and start in a minute. A task that is under none has no row here.

-- A task that is under limits. `tool_said` is empty if they are the operator's alone; '=' says that its tool has
-- limits, and '=' before a key that it gave it that. A task that is `held` by the limit that it `waits_for` is out
-- of the ready index: its ready_at is a time that never comes, or the one when the limit may let it start.
-- Queue, priority and share never change, and are here for the index.
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

-- The limits that tools have themselves, as the latest submission of each said them.
CREATE TABLE tool_limits (
    tool_name             TEXT PRIMARY KEY,
    max_running           BIGINT,
    max_starts_per_minute BIGINT,
    max_running_per_key   BIGINT
);

-- What started in the last minute, where there is a limit on that.
CREATE TABLE limited_starts (
    name    TEXT NOT NULL,
    at      BIGINT NOT NULL,
    seq     BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    PRIMARY KEY (name, at, seq, attempt)
);
CREATE INDEX limited_starts_by_time ON limited_starts (at);
