-- Cosignatures of checkpoints, one a witness.
CREATE TABLE IF NOT EXISTS checkpoint_signature (
    log_number  INT UNSIGNED    NOT NULL,
    size        BIGINT UNSIGNED NOT NULL,
    witness_id  BIGINT UNSIGNED NOT NULL,
    line        VARCHAR(400) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    created_at  DATETIME(6)     NOT NULL,
    PRIMARY KEY (log_number, size, witness_id)
) ENGINE = InnoDB
