-- One log-in and all refresh tokens that descend from it. Its row is locked before any of its
-- tokens, so that a rotation and a revocation of the same family follow one another.
CREATE TABLE IF NOT EXISTS refresh_family (
    family      BINARY(16)      NOT NULL PRIMARY KEY,
    user_id     BIGINT UNSIGNED NOT NULL,
    scopes      JSON            NOT NULL COMMENT 'asked for at log-in',
    created_at  DATETIME(6)     NOT NULL,
    expires_at  DATETIME(6)     NOT NULL COMMENT 'however often it is refreshed',
    revoked_at  DATETIME(6)     NULL,
    revoked_by  VARCHAR(16)     NULL COMMENT 'logout, reuse, disabled',
    KEY family_user (user_id, revoked_at),
    KEY family_expiry (expires_at)
) ENGINE = InnoDB
