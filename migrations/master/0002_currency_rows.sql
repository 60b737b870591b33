INSERT IGNORE INTO currency (code, kind, exponent, ledger) VALUES
    ('USD', 'fiat', 2, 1), ('EUR', 'fiat', 2, 2), ('RUB', 'fiat', 2, 3),
    ('THB', 'fiat', 2, 4), ('TRY', 'fiat', 2, 5), ('AED', 'fiat', 2, 6),
    ('USD-CASH', 'cash', 2, 101), ('EUR-CASH', 'cash', 2, 102), ('RUB-CASH', 'cash', 2, 103),
    ('THB-CASH', 'cash', 2, 104), ('TRY-CASH', 'cash', 2, 105), ('AED-CASH', 'cash', 2, 106),
    ('USDT-TRC20', 'crypto', 6, 201), ('USDT-ERC20', 'crypto', 6, 202), ('BTC', 'crypto', 8, 203)
