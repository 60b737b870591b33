-- What brokers and integrators may want to know, written with its cause. A sequencer gives
-- each broker's feed its positions after commit: an auto-increment is taken before commit and
-- would let a reader that resumes miss a row.
CREATE TABLE IF NOT EXISTS feed_event (
    id          BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
    broker_id   BIGINT UNSIGNED NOT NULL COMMENT 'whose feed; 0: the platform''s',
    kind        VARCHAR(40)     NOT NULL,
    subject     VARCHAR(64)     NOT NULL,
    payload     JSON            NOT NULL,
    created_at  DATETIME(6)     NOT NULL,
    position    BIGINT UNSIGNED NULL,
    sequenced   BOOLEAN         NOT NULL DEFAULT FALSE,
    UNIQUE KEY feed_position (broker_id, position),
    KEY feed_unsequenced (sequenced, id)
) ENGINE = InnoDB
