-- Brokers that leave, and what was kept of those that have left.
CREATE TABLE IF NOT EXISTS broker_exit (
    broker_id      BIGINT UNSIGNED NOT NULL PRIMARY KEY,
    begun_by       VARCHAR(80)     NOT NULL COMMENT 'subject of the token, or who was at the command line',
    begun_at       DATETIME(6)     NOT NULL,
    export_digest  BINARY(32)      NULL COMMENT 'of the first line of the file, which has those of all others',
    head_seq       BIGINT UNSIGNED NULL,
    head_hash      BINARY(32)      NULL,
    archived_by    VARCHAR(80)     NULL,
    archived_at    DATETIME(6)     NULL
) ENGINE = InnoDB
