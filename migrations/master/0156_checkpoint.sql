-- Signed states of the logs, as notes. None is ever changed.
CREATE TABLE IF NOT EXISTS checkpoint (
    log_number  INT UNSIGNED    NOT NULL,
    size        BIGINT UNSIGNED NOT NULL,
    root        BINARY(32)      NOT NULL,
    note        TEXT            NOT NULL COMMENT 'the text with our own signatures',
    signed_at   DATETIME(6)     NOT NULL,
    PRIMARY KEY (log_number, size)
) ENGINE = InnoDB
