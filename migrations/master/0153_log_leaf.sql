-- The leaves of a log: all that the canonical JSON of each has in it.
CREATE TABLE IF NOT EXISTS log_leaf (
    log_number  INT UNSIGNED      NOT NULL,
    leaf_index  BIGINT UNSIGNED   NOT NULL,
    v           SMALLINT UNSIGNED NOT NULL,
    kind        VARCHAR(8)        NOT NULL COMMENT 'book, entry, request, log',
    id          VARCHAR(200) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    seq         BIGINT UNSIGNED   NOT NULL,
    hash        BINARY(32)        NOT NULL,
    at          DATETIME(6)       NOT NULL,
    PRIMARY KEY (log_number, leaf_index),
    KEY log_leaf_of (log_number, kind, id, leaf_index),
    KEY log_leaf_at (log_number, kind, id, seq)
) ENGINE = InnoDB
