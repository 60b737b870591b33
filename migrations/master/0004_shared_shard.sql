CREATE TABLE IF NOT EXISTS shared_shard (
    shard_id       INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
    server_name    VARCHAR(32)  NOT NULL,
    database_name  VARCHAR(64)  NOT NULL,
    capacity       INT UNSIGNED NOT NULL COMMENT 'brokers it may hold',
    accepts_new    BOOLEAN      NOT NULL DEFAULT TRUE,
    created_at     DATETIME(6)  NOT NULL,
    UNIQUE KEY shared_shard_place (server_name, database_name)
) ENGINE = InnoDB
