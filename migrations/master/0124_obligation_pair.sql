-- What one broker owes another in a currency, oldest first, with the amounts that are summed of it. ADD
-- KEY IF NOT EXISTS is MariaDB's alone.
SET @add_key = IF(
    EXISTS (
        SELECT 1 FROM information_schema.statistics
        WHERE table_schema = DATABASE() AND table_name = 'obligation'
          AND index_name = 'obligation_pair'
    ),
    'DO 0',
    'ALTER TABLE obligation ADD KEY obligation_pair
         (debtor_broker_id, creditor_broker_id, currency_code, status, created_at, obligation_id,
          remaining_amount, reserved_amount)'
);
PREPARE add_key FROM @add_key;
EXECUTE add_key;
DEALLOCATE PREPARE add_key
