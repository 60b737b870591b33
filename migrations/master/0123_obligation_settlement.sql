-- What of an obligation is promised to a settlement, or was settled by one or by netting. The
-- obligation's remaining_amount is its amount less all that was settled, its reserved_amount what
-- is reserved here. Amounts are minor units.
CREATE TABLE IF NOT EXISTS obligation_settlement (
    subject         VARCHAR(32)     NOT NULL COMMENT 'NR-… (a settlement), NP-… (a netting of two), MN-… (a round)',
    obligation_id   BIGINT UNSIGNED NOT NULL,
    amount          BIGINT UNSIGNED NOT NULL COMMENT 'what was promised',
    settled_amount  BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'what of it came about',
    status          VARCHAR(8)      NOT NULL COMMENT 'reserved, settled, released',
    created_at      DATETIME(6)     NOT NULL,
    closed_at       DATETIME(6)     NULL,
    PRIMARY KEY (subject, obligation_id),
    KEY settlement_of_obligation (obligation_id, created_at, subject)
) ENGINE = InnoDB
