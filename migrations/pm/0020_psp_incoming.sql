-- Payments that have come in, each once however often it is told of. Amounts are minor units.
CREATE TABLE IF NOT EXISTS pm.psp_incoming (
    id            UUID         NOT NULL PRIMARY KEY,
    psp_name      TEXT         NOT NULL,
    payment_id    TEXT         NOT NULL,
    reference     TEXT         NOT NULL,
    intent_id     UUID         NULL,
    currency_code TEXT         NOT NULL,
    ledger        INTEGER      NOT NULL,
    amount        BIGINT       NOT NULL,
    paid_at       TIMESTAMPTZ  NOT NULL,
    status        TEXT         NOT NULL,
    wallet        TEXT         NULL,
    reason        TEXT         NULL,
    resolved_by   TEXT         NULL,
    deliveries    INTEGER      NOT NULL DEFAULT 1,
    received_at   TIMESTAMPTZ  NOT NULL,
    updated_at    TIMESTAMPTZ  NOT NULL,
    CONSTRAINT psp_incoming_payment_unique UNIQUE (psp_name, payment_id),
    CONSTRAINT psp_incoming_amount_chk CHECK (amount > 0),
    CONSTRAINT psp_incoming_status_chk CHECK (status IN
        ('waiting', 'credited', 'suspense', 'unknown', 'assigned'))
)
