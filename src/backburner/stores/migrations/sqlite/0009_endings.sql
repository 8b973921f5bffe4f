-- What has come to an end, in order, for metrics: one entry for each attempt that is over, and for each task that
-- ended without one.

CREATE INDEX task_events_endings ON task_events (ts, task_id, seq)
    WHERE from_state IN ('queued', 'scheduled', 'running', 'input_required', 'cancel_requested', 'cancelling')
      AND to_state IN ('queued', 'succeeded', 'failed', 'cancelled', 'timed_out', 'expired')
      AND from_state <> to_state;
