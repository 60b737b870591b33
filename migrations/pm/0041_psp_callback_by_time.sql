CREATE INDEX IF NOT EXISTS psp_callback_by_time_idx ON pm.psp_callback (received_at)
