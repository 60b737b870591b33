-- Held exclusively while entries are appended. feed_position numbers the book's feed under
-- the same lock, so its order is the order of commits.
CREATE TABLE IF NOT EXISTS chain_head (
    broker_id      BIGINT UNSIGNED NOT NULL PRIMARY KEY,
    seq            BIGINT UNSIGNED NOT NULL,
    tx_hash        BINARY(32)      NOT NULL COMMENT 'of the last entry; the genesis value at seq 0',
    feed_position  BIGINT UNSIGNED NOT NULL DEFAULT 0
) ENGINE = InnoDB
