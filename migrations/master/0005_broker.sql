-- A SOLO broker's book is in a shared shard, a FULL broker's in its own database.
CREATE TABLE IF NOT EXISTS broker (
    broker_id              BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
    name                   VARCHAR(120)    NOT NULL,
    broker_mode            VARCHAR(4)      NOT NULL COMMENT 'SOLO, FULL',
    plan                   VARCHAR(8)      NOT NULL COMMENT 'starter, growth, pro',
    state                  VARCHAR(12)     NOT NULL COMMENT 'provisioning, active, suspended',
    shared_shard_id        INT UNSIGNED    NULL,
    server_name            VARCHAR(32)     NULL,
    database_name          VARCHAR(64)     NULL,
    route_epoch            BIGINT UNSIGNED NOT NULL DEFAULT 1,
    referred_by_broker_id  BIGINT UNSIGNED NULL,
    created_at             DATETIME(6)     NOT NULL,
    UNIQUE KEY broker_name (name),
    KEY broker_shard (shared_shard_id)
) ENGINE = InnoDB
