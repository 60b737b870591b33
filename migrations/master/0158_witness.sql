-- Keys of those who cosign checkpoints: one of a broker's own (broker_id), and outside ones that the
-- platform has taken in. is_active is NULL once it is withdrawn: what it has signed stays.
CREATE TABLE IF NOT EXISTS witness (
    witness_id    BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
    broker_id     BIGINT UNSIGNED NULL,
    name          VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    vkey          VARCHAR(300) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'NAME+ID+KEY',
    is_active     BOOLEAN         NULL,
    created_by    VARCHAR(80)     NOT NULL,
    created_at    DATETIME(6)     NOT NULL,
    withdrawn_at  DATETIME(6)     NULL,
    UNIQUE KEY witness_of_broker (broker_id, is_active),
    UNIQUE KEY witness_name (name, is_active)
) ENGINE = InnoDB
