CREATE INDEX IF NOT EXISTS psp_tx_map_confirm_rq_uid_idx ON pm.psp_tx_map (confirm_rq_uid)
