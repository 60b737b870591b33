-- The brokers that a round touches, or has touched. fall is by how much a broker's debts fall,
-- and its claims by the same, in minor units.
CREATE TABLE IF NOT EXISTS netting_party (
    round_id     BIGINT UNSIGNED NOT NULL,
    broker_id    BIGINT UNSIGNED NOT NULL,
    state        VARCHAR(8)      NOT NULL COMMENT 'asked, approved, declined, dropped',
    fall         DECIMAL(38, 0)  NOT NULL,
    auto         BOOLEAN         NOT NULL COMMENT 'approved by the broker''s setting',
    answered_by  VARCHAR(80)     NULL,
    answered_at  DATETIME(6)     NULL,
    created_at   DATETIME(6)     NOT NULL,
    PRIMARY KEY (round_id, broker_id),
    KEY netting_party_newest (broker_id, created_at, round_id)
) ENGINE = InnoDB
