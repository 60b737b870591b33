-- Instructions to move a user's money through a payment provider. Amounts are minor units.
CREATE TABLE IF NOT EXISTS pm.intent (
    id              UUID         NOT NULL PRIMARY KEY,
    kind            TEXT         NOT NULL,
    broker_id       BIGINT       NOT NULL,
    user_id         TEXT         NOT NULL,
    wallet          TEXT         NOT NULL,
    currency_code   TEXT         NOT NULL,
    ledger          INTEGER      NOT NULL,
    amount          BIGINT       NOT NULL,
    fee_amount      BIGINT       NOT NULL,
    channel         TEXT         NOT NULL,
    receiver        JSONB        NOT NULL,
    book_account_id TEXT         NULL,
    status          TEXT         NOT NULL DEFAULT 'created',
    reason          TEXT         NULL,
    created_by      TEXT         NOT NULL,
    created_at      TIMESTAMPTZ  NOT NULL,
    updated_at      TIMESTAMPTZ  NOT NULL,
    CONSTRAINT intent_kind_chk CHECK (kind IN ('payout', 'top_up')),
    CONSTRAINT intent_amount_chk CHECK (amount > 0 AND fee_amount >= 0),
    CONSTRAINT intent_status_chk CHECK (status IN
        ('created', 'held', 'processing', 'completed', 'failed', 'manual_review', 'returned'))
)
