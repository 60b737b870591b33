-- What has not been heard of, the longest first.
CREATE INDEX IF NOT EXISTS psp_watch_unheard_idx
    ON pm.psp_watch (psp_name, (COALESCE(heard_at, created_at)))
