-- Log-in attempts that have not succeeded, per login and per address.
CREATE TABLE IF NOT EXISTS login_throttle (
    subject            BINARY(32)   NOT NULL PRIMARY KEY COMMENT 'SHA-256 of kind and value',
    attempts           INT UNSIGNED NOT NULL,
    window_started_at  DATETIME(6)  NOT NULL,
    blocked_until      DATETIME(6)  NULL,
    updated_at         DATETIME(6)  NOT NULL,
    KEY throttle_updated (updated_at)
) ENGINE = InnoDB
