-- Programs that log in. client_id is 48 bits, printed as CL- and 12 hex digits. The secret is
-- 256 random bits, so one SHA-256 keeps it: a slow hash protects what can be guessed.
CREATE TABLE IF NOT EXISTS api_client (
    client_id     BIGINT UNSIGNED NOT NULL PRIMARY KEY,
    name          VARCHAR(120)    NOT NULL,
    secret_hash   BINARY(32)      NOT NULL,
    role          VARCHAR(16)     NOT NULL COMMENT 'as of user, and agent',
    broker_id     BIGINT UNSIGNED NULL COMMENT 'NULL: the platform''s own team',
    scopes        JSON            NOT NULL COMMENT 'names; at most those of the role',
    limit_digest  BINARY(32)      NULL COMMENT 'the limit an agent acts under',
    state         VARCHAR(8)      NOT NULL COMMENT 'active, disabled',
    created_at    DATETIME(6)     NOT NULL,
    updated_at    DATETIME(6)     NOT NULL,
    KEY client_team (broker_id, created_at, client_id)
) ENGINE = InnoDB
