-- Which time a broker is leaving: a file that was made for one is not taken for another. ADD COLUMN
-- IF NOT EXISTS is MariaDB's alone.
SET @change = IF(
    EXISTS (
        SELECT 1 FROM information_schema.columns
        WHERE table_schema = DATABASE() AND table_name = 'broker_exit' AND column_name = 'number'
    ),
    'DO 0',
    'ALTER TABLE broker_exit
         ADD COLUMN number INT UNSIGNED NOT NULL DEFAULT 1 COMMENT ''rises each time it begins, and each time its book is written again'''
);
PREPARE a_change FROM @change;
EXECUTE a_change;
DEALLOCATE PREPARE a_change
