-- Public halves of the keys that sign checkpoints. Private halves are files that the configuration
-- names and never here.
CREATE TABLE IF NOT EXISTS log_key (
    public_key  BINARY(32)  NOT NULL PRIMARY KEY COMMENT 'Ed25519',
    created_at  DATETIME(6) NOT NULL
) ENGINE = InnoDB
