-- A token is 256 random bits and only its SHA-256 is kept. Used a second time (rotated_at set),
-- it is known to two parties, and its family is revoked.
CREATE TABLE IF NOT EXISTS refresh_token (
    token_hash  BINARY(32)  NOT NULL PRIMARY KEY,
    family      BINARY(16)  NOT NULL,
    issued_at   DATETIME(6) NOT NULL,
    expires_at  DATETIME(6) NOT NULL,
    rotated_at  DATETIME(6) NULL,
    KEY token_family (family)
) ENGINE = InnoDB
