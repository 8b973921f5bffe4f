-- For those who look: the order of all events, what ended when, and the queues that are paused.

-- The events of all tasks in the order of their commits, as far back as the keeper leaves them. One that is deleted
-- with its task stays here as a number without an event.
CREATE TABLE event_order (
    number  INTEGER PRIMARY KEY,
    task_id TEXT NOT NULL,
    seq     INTEGER NOT NULL
);
CREATE TRIGGER task_events_in_order AFTER INSERT ON task_events
BEGIN
    INSERT INTO event_order (task_id, seq) VALUES (NEW.task_id, NEW.seq);
END;

-- All that statistics over time need, so that they never look at a task itself.
CREATE INDEX tasks_ended ON tasks (completed_at, state, owner, tool_name, queue, submitted_at, started_at)
    WHERE completed_at IS NOT NULL;

-- Tasks of these wait until somebody resumes them.
CREATE TABLE paused_queues (
    queue     TEXT PRIMARY KEY,
    paused_at INTEGER NOT NULL,
    paused_by TEXT NOT NULL
) WITHOUT ROWID;
