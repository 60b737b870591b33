CREATE INDEX IF NOT EXISTS psp_watch_until_idx ON pm.psp_watch (psp_name, until_at)
