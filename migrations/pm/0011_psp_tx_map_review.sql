-- What waits for a person.
CREATE INDEX IF NOT EXISTS psp_tx_map_review_idx ON pm.psp_tx_map (created_at, id)
    WHERE state = 'MANUAL_REVIEW'
