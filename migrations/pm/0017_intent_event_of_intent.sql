CREATE INDEX IF NOT EXISTS intent_event_of_intent_idx ON pm.intent_event (intent_id, id)
