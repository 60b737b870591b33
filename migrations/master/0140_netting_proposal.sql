-- Proposals of one broker to another to net what they owe each other. Amounts are minor units.
-- proposal_id is 48 bits, printed as NP- and 12 hex digits.
CREATE TABLE IF NOT EXISTS netting_proposal (
    proposal_id      BIGINT UNSIGNED NOT NULL PRIMARY KEY,
    proposer_id      BIGINT UNSIGNED NOT NULL,
    counterparty_id  BIGINT UNSIGNED NOT NULL,
    currency_code    VARCHAR(16)     NOT NULL,
    most             BIGINT UNSIGNED NULL COMMENT 'no more than this, where it is set',
    status           VARCHAR(9)      NOT NULL COMMENT 'proposed, applied, declined, cancelled, expired',
    netted           BIGINT UNSIGNED NULL COMMENT 'by how much each side''s debts have fallen',
    proposed_by      VARCHAR(80)     NOT NULL,
    created_at       DATETIME(6)     NOT NULL,
    expires_at       DATETIME(6)     NOT NULL,
    ended_by         VARCHAR(80)     NULL,
    ended_at         DATETIME(6)     NULL,
    KEY netting_proposal_due (status, expires_at, proposal_id),
    KEY netting_proposal_proposer (proposer_id, created_at, proposal_id),
    KEY netting_proposal_counterparty (counterparty_id, created_at, proposal_id)
) ENGINE = InnoDB
