-- What happened to an intent, in order: never changed, never deleted.
CREATE TABLE IF NOT EXISTS pm.intent_event (
    id           BIGINT       GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    intent_id    UUID         NOT NULL,
    status_from  TEXT         NULL,
    status_to    TEXT         NOT NULL,
    reason       TEXT         NULL,
    payload      JSONB        NOT NULL,
    created_at   TIMESTAMPTZ  NOT NULL
)
