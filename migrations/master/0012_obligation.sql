-- debtor owes creditor; remaining_amount falls as it is settled, reserved_amount is promised
-- to a settlement under way. obligation_id is 48 bits, printed as OB- and 12 hex digits.
CREATE TABLE IF NOT EXISTS obligation (
    obligation_id       BIGINT UNSIGNED NOT NULL PRIMARY KEY,
    saga_id             BINARY(16)      NOT NULL,
    subject             VARCHAR(32)     NOT NULL COMMENT 'NR-… or OR-…',
    debtor_broker_id    BIGINT UNSIGNED NOT NULL,
    creditor_broker_id  BIGINT UNSIGNED NOT NULL,
    currency_code       VARCHAR(16)     NOT NULL,
    amount              BIGINT UNSIGNED NOT NULL,
    remaining_amount    BIGINT UNSIGNED NOT NULL,
    reserved_amount     BIGINT UNSIGNED NOT NULL DEFAULT 0,
    status              VARCHAR(8)      NOT NULL COMMENT 'pending, active, settled, failed',
    created_at          DATETIME(6)     NOT NULL,
    activated_at        DATETIME(6)     NULL,
    UNIQUE KEY obligation_saga (saga_id),
    KEY obligation_debtor (debtor_broker_id, status, currency_code, created_at, obligation_id),
    KEY obligation_creditor (creditor_broker_id, status, currency_code, created_at, obligation_id)
) ENGINE = InnoDB
