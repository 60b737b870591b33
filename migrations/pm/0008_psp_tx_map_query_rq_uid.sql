CREATE INDEX IF NOT EXISTS psp_tx_map_query_rq_uid_idx ON pm.psp_tx_map (query_rq_uid)
