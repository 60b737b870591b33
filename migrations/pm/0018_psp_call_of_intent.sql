CREATE INDEX IF NOT EXISTS psp_call_of_intent_idx ON pm.psp_call (intent_id, called_at, id)
