-- A broker's intents, newest first.
CREATE INDEX IF NOT EXISTS intent_newest_idx ON pm.intent (broker_id, created_at DESC, id DESC)
