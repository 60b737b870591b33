-- A book's feed. Positions are given under the chain head's lock.
CREATE TABLE IF NOT EXISTS feed_event (
    broker_id   BIGINT UNSIGNED NOT NULL,
    position    BIGINT UNSIGNED NOT NULL,
    kind        VARCHAR(40)     NOT NULL,
    subject     VARCHAR(64)     NOT NULL,
    payload     JSON            NOT NULL,
    created_at  DATETIME(6)     NOT NULL,
    PRIMARY KEY (broker_id, position)
) ENGINE = InnoDB
