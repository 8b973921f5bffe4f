-- Calls whose answer nobody has got yet, so that the same call, made again, finds its task.

CREATE TABLE open_calls (
    task_id        TEXT PRIMARY KEY,
    owner          TEXT NOT NULL,
    tool_name      TEXT NOT NULL,
    inputs_hash    TEXT NOT NULL,
    attended_until INTEGER NOT NULL,
    given_up       TEXT
) WITHOUT ROWID;
CREATE INDEX open_calls_by_call ON open_calls (owner, tool_name, inputs_hash, task_id);
