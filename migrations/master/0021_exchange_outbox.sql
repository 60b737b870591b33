-- The steps of every saga. One row per running saga is `pending`: its cursor, which carries
-- the lease; later steps wait. Steps are idempotent, so a status may lag behind the truth.
CREATE TABLE IF NOT EXISTS exchange_outbox (
    id               BIGINT UNSIGNED   NOT NULL AUTO_INCREMENT PRIMARY KEY,
    saga_id          BINARY(16)        NOT NULL,
    step             SMALLINT UNSIGNED NOT NULL,
    direction        VARCHAR(4)        NOT NULL COMMENT 'do, undo',
    target_db        VARCHAR(32)       NOT NULL COMMENT 'master, ledger, tenant_{broker_id}',
    entity_class     VARCHAR(32)       NOT NULL,
    payload          JSON              NOT NULL,
    payload_version  SMALLINT UNSIGNED NOT NULL,
    status           VARCHAR(8)        NOT NULL COMMENT 'waiting, pending, done, refused, failed',
    retries          INT UNSIGNED      NOT NULL DEFAULT 0,
    max_retries      INT UNSIGNED      NOT NULL DEFAULT 5,
    error_message    TEXT              NULL,
    available_at     DATETIME(6)       NOT NULL,
    leased_by        VARCHAR(64)       NULL,
    lease_token      BINARY(16)        NULL,
    leased_until     DATETIME(6)       NULL,
    created_at       DATETIME(6)       NOT NULL,
    processed_at     DATETIME(6)       NULL,
    UNIQUE KEY outbox_step (saga_id, step, direction),
    KEY outbox_due (status, available_at, id)
) ENGINE = InnoDB
