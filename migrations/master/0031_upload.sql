CREATE TABLE IF NOT EXISTS upload (
    upload_id     BINARY(16)      NOT NULL PRIMARY KEY,
    broker_id     BIGINT UNSIGNED NOT NULL,
    sha256        BINARY(32)      NOT NULL,
    content_type  VARCHAR(64)     NOT NULL COMMENT 'found from the content, not claimed',
    size          INT UNSIGNED    NOT NULL,
    content       LONGBLOB        NOT NULL,
    created_at    DATETIME(6)     NOT NULL,
    KEY upload_broker (broker_id, created_at)
) ENGINE = InnoDB
