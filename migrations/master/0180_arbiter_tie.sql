-- Which arbiters are tied to which brokers, and hear no dispute of theirs. Kept for ever: is_active is NULL
-- once a tie has ended.
CREATE TABLE IF NOT EXISTS arbiter_tie (
    tie_id      BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
    user_id     BIGINT UNSIGNED NOT NULL,
    broker_id   BIGINT UNSIGNED NOT NULL,
    reason      VARCHAR(500) CHARACTER SET utf8mb4 NOT NULL,
    is_active   BOOLEAN         NULL,
    created_by  VARCHAR(80)     NOT NULL,
    created_at  DATETIME(6)     NOT NULL,
    ended_by    VARCHAR(80)     NULL,
    ended_at    DATETIME(6)     NULL,
    UNIQUE KEY arbiter_tie_active (user_id, broker_id, is_active)
) ENGINE = InnoDB
