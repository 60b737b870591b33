CREATE INDEX IF NOT EXISTS psp_watch_due_idx ON pm.psp_watch (psp_name, next_at)
