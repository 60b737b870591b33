-- Which requests a file proves something for: their parties may read it.
CREATE TABLE IF NOT EXISTS upload_use (
    upload_id   BINARY(16)      NOT NULL,
    request_id  BIGINT UNSIGNED NOT NULL,
    created_at  DATETIME(6)     NOT NULL,
    PRIMARY KEY (upload_id, request_id)
) ENGINE = InnoDB
