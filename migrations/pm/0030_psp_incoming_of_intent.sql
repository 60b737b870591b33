CREATE INDEX IF NOT EXISTS psp_incoming_of_intent_idx ON pm.psp_incoming (intent_id)
    WHERE intent_id IS NOT NULL
