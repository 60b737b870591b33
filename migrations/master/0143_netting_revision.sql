-- What a round was worked out to, each time. With its lines and prices it is the certificate,
-- which can be written again at any time. Amounts are minor units.
CREATE TABLE IF NOT EXISTS netting_revision (
    round_id     BIGINT UNSIGNED NOT NULL,
    revision     INT UNSIGNED    NOT NULL,
    obligations  BIGINT UNSIGNED NOT NULL,
    total        DECIMAL(38, 0)  NOT NULL,
    cleared      DECIMAL(38, 0)  NOT NULL,
    bilateral    DECIMAL(38, 0)  NOT NULL COMMENT 'what netting of each two brokers alone would clear',
    bound        DECIMAL(38, 0)  NOT NULL COMMENT 'what no clearing exceeds',
    root         BINARY(32)      NOT NULL COMMENT 'over the lines, without their reductions',
    created_at   DATETIME(6)     NOT NULL,
    PRIMARY KEY (round_id, revision)
) ENGINE = InnoDB
