CREATE INDEX IF NOT EXISTS tb_account_map_of_broker_idx
    ON pm.tb_account_map (broker_id, account_name)
