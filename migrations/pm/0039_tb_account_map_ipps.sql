CREATE INDEX IF NOT EXISTS tb_account_map_ipps_idx ON pm.tb_account_map (ipps_wallet_id)
    WHERE ipps_wallet_id IS NOT NULL
