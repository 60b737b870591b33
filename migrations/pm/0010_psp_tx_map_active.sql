-- What is picked up: rows that have ended are not in it, so it stays as small as the work is.
CREATE INDEX IF NOT EXISTS psp_tx_map_active_idx ON pm.psp_tx_map (psp_name, created_at)
    WHERE state IN ('NEW', 'QUERY_PENDING', 'QUERIED', 'CONFIRM_PENDING', 'INQUIRING')
