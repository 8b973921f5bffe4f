-- What has come to an end, in order, for metrics. The conditions are few, since each line of a trail is held against
-- them; who reads it leaves out the little that is not meant.

CREATE INDEX task_events_endings ON task_events (ts, task_id, seq)
    WHERE from_state <> to_state AND to_state <> 'scheduled' AND to_state <> 'running';
