-- Host names under which dashboards are brokers' own. Several may claim a name, since claiming
-- proves nothing; one has it.
CREATE TABLE IF NOT EXISTS broker_domain (
    broker_id     BIGINT UNSIGNED NOT NULL PRIMARY KEY,
    host          VARCHAR(253)    NOT NULL COMMENT 'lower case, punycode',
    active_host   VARCHAR(253)    NULL COMMENT 'the host, once it was proven',
    proof         VARCHAR(64)     NOT NULL COMMENT 'what the owner of the name publishes in a TXT record',
    claimed_at    DATETIME(6)     NOT NULL,
    activated_at  DATETIME(6)     NULL,
    activated_by  VARCHAR(80)     NULL,
    UNIQUE KEY domain_active (active_host),
    KEY domain_newest (claimed_at, broker_id)
) ENGINE = InnoDB
