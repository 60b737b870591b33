-- A user's intents, newest first.
CREATE INDEX IF NOT EXISTS intent_of_user_idx
    ON pm.intent (broker_id, user_id, created_at DESC, id DESC)
