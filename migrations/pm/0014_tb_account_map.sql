-- Wallets: whose they are and what providers know them by. The ledger id is computed from the
-- name; what is here of it is a convenience, never the truth.
CREATE TABLE IF NOT EXISTS pm.tb_account_map (
    account_name    TEXT         NOT NULL PRIMARY KEY,
    tb_account_id   UUID         NOT NULL,
    ledger          INTEGER      NOT NULL,
    code            INTEGER      NOT NULL,
    broker_id       BIGINT       NULL,
    user_id         TEXT         NULL,
    currency_code   TEXT         NOT NULL,
    ipps_wallet_id  TEXT         NULL,
    created_at      TIMESTAMPTZ  NOT NULL,
    CONSTRAINT tb_account_map_tb_account_id_unique UNIQUE (tb_account_id)
)
