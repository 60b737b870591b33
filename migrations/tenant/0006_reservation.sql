-- What is promised and not yet booked. account.reserved is the sum of the held ones.
CREATE TABLE IF NOT EXISTS reservation (
    broker_id   BIGINT UNSIGNED   NOT NULL,
    saga_id     BINARY(16)        NOT NULL COMMENT 'the accept saga that made it',
    leg         SMALLINT UNSIGNED NOT NULL,
    account_id  BIGINT UNSIGNED   NOT NULL,
    subject     VARCHAR(32)       NOT NULL,
    amount      BIGINT UNSIGNED   NOT NULL,
    state       VARCHAR(8)        NOT NULL COMMENT 'held, consumed, released',
    created_at  DATETIME(6)       NOT NULL,
    updated_at  DATETIME(6)       NOT NULL,
    PRIMARY KEY (broker_id, saga_id, leg),
    KEY reservation_account (broker_id, account_id, state)
) ENGINE = InnoDB
