-- account_id is 48 bits derived from (broker, owner, currency), printed as AC- and 12 hex digits.
-- available = balance - reserved - min_balance; min_balance NULL: no floor.
CREATE TABLE IF NOT EXISTS account (
    broker_id      BIGINT UNSIGNED NOT NULL,
    account_id     BIGINT UNSIGNED NOT NULL,
    owner_kind     VARCHAR(8)      NOT NULL COMMENT 'house, cashier, partner',
    owner_ref      VARCHAR(64)     NOT NULL,
    currency_code  VARCHAR(16)     NOT NULL,
    state          VARCHAR(8)      NOT NULL COMMENT 'open, closed',
    balance        BIGINT          NOT NULL,
    reserved       BIGINT          NOT NULL DEFAULT 0,
    min_balance    BIGINT          NULL,
    created_at     DATETIME(6)     NOT NULL,
    PRIMARY KEY (broker_id, account_id),
    UNIQUE KEY account_owner (broker_id, owner_kind, owner_ref, currency_code)
) ENGINE = InnoDB
