-- People who log in. user_id is 48 bits, printed as US- and 12 hex digits; login is lower case.
CREATE TABLE IF NOT EXISTS user (
    user_id        BIGINT UNSIGNED NOT NULL PRIMARY KEY,
    login          VARCHAR(120)    NOT NULL,
    password_hash  VARCHAR(255)    NOT NULL COMMENT 'argon2id, PHC string',
    role           VARCHAR(16)     NOT NULL COMMENT 'broker_admin, broker_operator, broker_viewer, platform_admin, arbiter',
    broker_id      BIGINT UNSIGNED NULL COMMENT 'NULL: the platform''s own team',
    state          VARCHAR(8)      NOT NULL COMMENT 'active, disabled',
    created_at     DATETIME(6)     NOT NULL,
    updated_at     DATETIME(6)     NOT NULL,
    UNIQUE KEY user_login (login),
    KEY user_team (broker_id, created_at, user_id)
) ENGINE = InnoDB
