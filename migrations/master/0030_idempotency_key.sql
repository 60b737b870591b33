-- One row per (client, Idempotency-Key), in the same transaction as the effect it stands for.
CREATE TABLE IF NOT EXISTS idempotency_key (
    client           VARCHAR(80)  NOT NULL COMMENT 'subject of the token',
    idempotency_key  VARCHAR(128) NOT NULL,
    fingerprint      BINARY(32)   NOT NULL COMMENT 'SHA-256 of method, path and canonical body',
    subject          VARCHAR(64)  NOT NULL COMMENT 'id of what was created',
    created_at       DATETIME(6)  NOT NULL,
    PRIMARY KEY (client, idempotency_key),
    KEY idempotency_created (created_at)
) ENGINE = InnoDB
