-- What waits for its top-up to end, the longest untouched first.
CREATE INDEX IF NOT EXISTS psp_incoming_waiting_idx ON pm.psp_incoming (updated_at, id)
    WHERE status = 'waiting' AND disputed_at IS NULL
