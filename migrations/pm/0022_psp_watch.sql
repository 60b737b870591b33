-- Payments that were made and may yet be sent back: when each is asked about next, and for how long.
CREATE TABLE IF NOT EXISTS pm.psp_watch (
    intent_id  UUID         NOT NULL PRIMARY KEY,
    psp_name   TEXT         NOT NULL,
    next_at    TIMESTAMPTZ  NOT NULL,
    until_at   TIMESTAMPTZ  NOT NULL,
    created_at TIMESTAMPTZ  NOT NULL
)
WITH (
    fillfactor = 85,
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.05
)
