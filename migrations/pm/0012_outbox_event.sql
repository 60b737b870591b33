-- What the ledger and a book are to be told of an intent: each action at most once per intent.
CREATE TABLE IF NOT EXISTS pm.outbox_event (
    id           UUID         NOT NULL PRIMARY KEY,
    intent_id    UUID         NOT NULL,
    action       TEXT         NOT NULL,
    status       TEXT         NOT NULL DEFAULT 'pending',
    leased_by    TEXT         NULL,
    leased_at    TIMESTAMPTZ  NULL,
    retry_count  INTEGER      NOT NULL DEFAULT 0,
    last_error   TEXT         NULL,
    created_at   TIMESTAMPTZ  NOT NULL,
    updated_at   TIMESTAMPTZ  NOT NULL,
    CONSTRAINT outbox_event_intent_action_unique UNIQUE (intent_id, action),
    CONSTRAINT outbox_event_action_chk CHECK (action IN
        ('hold_pending', 'post_pending', 'void_pending', 'return_pending')),
    CONSTRAINT outbox_event_status_chk CHECK (status IN ('pending', 'done', 'refused', 'stuck'))
)
WITH (
    fillfactor = 85,
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.05
)
