CREATE TABLE IF NOT EXISTS idempotency_key (
    broker_id        BIGINT UNSIGNED NOT NULL,
    client           VARCHAR(80)     NOT NULL,
    idempotency_key  VARCHAR(128)    NOT NULL,
    fingerprint      BINARY(32)      NOT NULL,
    subject          VARCHAR(64)     NOT NULL,
    created_at       DATETIME(6)     NOT NULL,
    PRIMARY KEY (broker_id, client, idempotency_key),
    KEY idempotency_created (broker_id, created_at)
) ENGINE = InnoDB
