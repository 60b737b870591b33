-- Lists of entries of one kind, newest first. ADD KEY IF NOT EXISTS is MariaDB's alone.
SET @add_key = IF(
    EXISTS (
        SELECT 1 FROM information_schema.statistics
        WHERE table_schema = DATABASE() AND table_name = 'transaction' AND index_name = 'transaction_kind'
    ),
    'DO 0',
    'ALTER TABLE transaction ADD KEY transaction_kind (broker_id, kind, seq)'
);
PREPARE add_key FROM @add_key;
EXECUTE add_key;
DEALLOCATE PREPARE add_key
