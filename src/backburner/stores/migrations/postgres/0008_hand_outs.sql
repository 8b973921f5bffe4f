-- Tasks that a queue outside was given, for their next attempt. One with a time in `again_at` is not there any
-- more, and is to be handed out again then; `problem` says what its queue had against it.

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
