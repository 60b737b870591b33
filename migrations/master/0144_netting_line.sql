-- An obligation as it went into a round: what might be cleared of it, and what is. Minor units.
CREATE TABLE IF NOT EXISTS netting_line (
    round_id            BIGINT UNSIGNED NOT NULL,
    revision            INT UNSIGNED    NOT NULL,
    obligation_id       BIGINT UNSIGNED NOT NULL,
    debtor_broker_id    BIGINT UNSIGNED NOT NULL,
    creditor_broker_id  BIGINT UNSIGNED NOT NULL,
    amount              BIGINT UNSIGNED NOT NULL,
    reduction           BIGINT UNSIGNED NOT NULL,
    PRIMARY KEY (round_id, revision, obligation_id),
    KEY netting_line_debtor (round_id, revision, debtor_broker_id, obligation_id),
    KEY netting_line_creditor (round_id, revision, creditor_broker_id, obligation_id)
) ENGINE = InnoDB
