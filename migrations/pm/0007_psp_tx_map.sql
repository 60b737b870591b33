-- The provider's side of an intent, and the queue of the work on it. All columns after updated_at
-- came later than those before.
CREATE TABLE IF NOT EXISTS pm.psp_tx_map (
    id                    UUID PRIMARY KEY DEFAULT gen_random_uuid() NOT NULL,
    intent_id             UUID NOT NULL,
    psp_name              TEXT NOT NULL,
    state                 TEXT DEFAULT 'NEW' NOT NULL,
    query_rq_uid          TEXT,
    lookup_ref            TEXT,
    receiver_name_en      TEXT,
    receiver_display_name TEXT,
    receiver_bank         TEXT,
    confirm_rq_uid        TEXT,
    response_id           TEXT,
    settlement_date       TEXT,
    psp_fee_satang        INTEGER,
    leased_by             TEXT,
    leased_at             TIMESTAMP WITH TIME ZONE,
    retry_count           INTEGER DEFAULT 0 NOT NULL,
    last_error            TEXT,
    created_at            TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    updated_at            TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT psp_tx_map_intent_id_unique UNIQUE (intent_id),
    CONSTRAINT psp_tx_map_state_chk CHECK (state IN
        ('NEW', 'QUERY_PENDING', 'QUERIED', 'CONFIRM_PENDING', 'INQUIRING', 'CONFIRMED', 'FAILED',
         'MANUAL_REVIEW')),
    CONSTRAINT psp_tx_map_psp_chk CHECK (psp_name IN ('IPPS', 'QP', 'WISE'))
)
WITH (
    fillfactor = 85,
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.05
)
