-- What nothing mends by itself.
CREATE INDEX IF NOT EXISTS outbox_event_stuck_idx ON pm.outbox_event (created_at, id)
    WHERE status = 'stuck'
