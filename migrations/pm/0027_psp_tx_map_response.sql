-- One payment of a provider is one intent's: nobody's review is resolved with what another has.
CREATE UNIQUE INDEX IF NOT EXISTS psp_tx_map_response_unique
    ON pm.psp_tx_map (psp_name, response_id) WHERE response_id IS NOT NULL
