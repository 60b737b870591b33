-- For deleting what is old.
CREATE INDEX IF NOT EXISTS psp_call_by_time_idx ON pm.psp_call (called_at)
