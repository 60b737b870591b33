-- A broker's intents of one status, newest first.
CREATE INDEX IF NOT EXISTS intent_of_status_idx
    ON pm.intent (broker_id, status, created_at DESC, id DESC)
