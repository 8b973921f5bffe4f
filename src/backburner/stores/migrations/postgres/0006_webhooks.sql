-- Who is told that a task is over, and what is still to be told.

ALTER TABLE tasks ADD COLUMN webhooks_json TEXT;

-- Written with the end of a task, and deleted once it is delivered. What was given up has no due_at.
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
