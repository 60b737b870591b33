CREATE INDEX IF NOT EXISTS outbox_event_active_idx ON pm.outbox_event (created_at, id)
    WHERE status = 'pending'
