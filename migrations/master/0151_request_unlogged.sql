-- The requests whose events are newer than the log's, and no others. ADD KEY IF NOT EXISTS is
-- MariaDB's alone.
SET @add_key = IF(
    EXISTS (
        SELECT 1 FROM information_schema.statistics
        WHERE table_schema = DATABASE() AND table_name = 'network_request' AND index_name = 'request_unlogged'
    ),
    'DO 0',
    'ALTER TABLE network_request ADD KEY request_unlogged (unlogged, request_id)'
);
PREPARE add_key FROM @add_key;
EXECUTE add_key;
DEALLOCATE PREPARE add_key
