-- The prices that prove that no larger total was possible.
CREATE TABLE IF NOT EXISTS netting_price (
    round_id   BIGINT UNSIGNED NOT NULL,
    revision   INT UNSIGNED    NOT NULL,
    broker_id  BIGINT UNSIGNED NOT NULL,
    price      BIGINT          NOT NULL,
    PRIMARY KEY (round_id, revision, broker_id)
) ENGINE = InnoDB
