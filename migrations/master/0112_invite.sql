-- Invitations to join the network. invite_id is 48 bits, printed as IV- and 12 hex digits. The code
-- is 256 random bits and only its SHA-256 is kept.
CREATE TABLE IF NOT EXISTS invite (
    invite_id   BIGINT UNSIGNED NOT NULL PRIMARY KEY,
    code_hash   BINARY(32)      NOT NULL,
    broker_id   BIGINT UNSIGNED NULL COMMENT 'who invites; NULL: the platform',
    note        VARCHAR(120)    NULL,
    max_uses    INT UNSIGNED    NOT NULL,
    uses        INT UNSIGNED    NOT NULL DEFAULT 0,
    expires_at  DATETIME(6)     NOT NULL,
    revoked_at  DATETIME(6)     NULL,
    created_by  VARCHAR(80)     NOT NULL,
    created_at  DATETIME(6)     NOT NULL,
    UNIQUE KEY invite_code (code_hash),
    KEY invite_newest (created_at, invite_id),
    KEY invite_of_broker (broker_id, created_at, invite_id)
) ENGINE = InnoDB
