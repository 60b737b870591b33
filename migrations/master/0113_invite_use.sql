-- Which invitation a broker came by; written with the broker.
CREATE TABLE IF NOT EXISTS invite_use (
    broker_id  BIGINT UNSIGNED NOT NULL PRIMARY KEY,
    invite_id  BIGINT UNSIGNED NOT NULL,
    used_at    DATETIME(6)     NOT NULL,
    KEY use_of_invite (invite_id, broker_id)
) ENGINE = InnoDB
