-- What a creditor lets a debtor owe, in minor units; where there is no row there is no bound. What is
-- used of it is not stored: it is what remains of the obligations and what requests under way hold.
CREATE TABLE IF NOT EXISTS credit_line (
    creditor_broker_id  BIGINT UNSIGNED NOT NULL,
    debtor_broker_id    BIGINT UNSIGNED NOT NULL,
    currency_code       VARCHAR(16)     NOT NULL,
    limit_amount        BIGINT UNSIGNED NOT NULL,
    set_by              VARCHAR(80)     NOT NULL COMMENT 'subject of the token',
    created_at          DATETIME(6)     NOT NULL,
    updated_at          DATETIME(6)     NOT NULL,
    PRIMARY KEY (creditor_broker_id, debtor_broker_id, currency_code),
    KEY credit_line_debtor (debtor_broker_id, creditor_broker_id, currency_code)
) ENGINE = InnoDB
