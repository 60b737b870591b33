-- Rounds of netting over the network. Of one currency at most one is open: open_currency is the
-- currency then, and NULL afterwards, which no unique key counts. touched_at is when it was last
-- changed: workers take up what has been left for a while. round_id is 48 bits, printed as MN-
-- and 12 hex digits.
CREATE TABLE IF NOT EXISTS netting_round (
    round_id       BIGINT UNSIGNED NOT NULL PRIMARY KEY,
    currency_code  VARCHAR(16)     NOT NULL,
    open_currency  VARCHAR(16)     NULL,
    status         VARCHAR(12)     NOT NULL COMMENT 'proposed, recomputing, approved, applied, failed, cancelled, expired',
    revision       INT UNSIGNED    NOT NULL COMMENT 'the present one of netting_revision',
    proposed_by    VARCHAR(80)     NOT NULL,
    created_at     DATETIME(6)     NOT NULL,
    expires_at     DATETIME(6)     NOT NULL,
    touched_at     DATETIME(6)     NOT NULL,
    ended_by       VARCHAR(80)     NULL,
    ended_at       DATETIME(6)     NULL,
    UNIQUE KEY netting_round_open (open_currency),
    KEY netting_round_left (status, touched_at, round_id),
    KEY netting_round_due (status, expires_at, round_id),
    KEY netting_round_newest (created_at, round_id)
) ENGINE = InnoDB
