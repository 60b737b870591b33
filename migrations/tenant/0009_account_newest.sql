-- Lists of accounts, newest first. ADD KEY IF NOT EXISTS is MariaDB's alone.
SET @add_key = IF(
    EXISTS (
        SELECT 1 FROM information_schema.statistics
        WHERE table_schema = DATABASE() AND table_name = 'account' AND index_name = 'account_newest'
    ),
    'DO 0',
    'ALTER TABLE account ADD KEY account_newest (broker_id, created_at, account_id)'
);
PREPARE add_key FROM @add_key;
EXECUTE add_key;
DEALLOCATE PREPARE add_key
