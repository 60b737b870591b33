-- The books whose head is newer than the log's, and no others. ADD KEY IF NOT EXISTS is MariaDB's alone.
SET @add_key = IF(
    EXISTS (
        SELECT 1 FROM information_schema.statistics
        WHERE table_schema = DATABASE() AND table_name = 'chain_head' AND index_name = 'chain_head_unlogged'
    ),
    'DO 0',
    'ALTER TABLE chain_head ADD KEY chain_head_unlogged (unlogged, broker_id)'
);
PREPARE add_key FROM @add_key;
EXECUTE add_key;
DEALLOCATE PREPARE add_key
