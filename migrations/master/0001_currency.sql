-- The registry of currencies. `ledger` is the currency's ledger number in TigerBeetle, for ever.
CREATE TABLE IF NOT EXISTS currency (
    code      VARCHAR(16)      NOT NULL PRIMARY KEY,
    kind      VARCHAR(8)       NOT NULL COMMENT 'fiat, cash, crypto',
    exponent  TINYINT UNSIGNED NOT NULL COMMENT 'decimal places of the minor unit',
    ledger    INT UNSIGNED     NOT NULL,
    UNIQUE KEY currency_ledger (ledger)
) ENGINE = InnoDB
