-- Up to where a book is known to hold, so that what it has grown by is verified from there; and when all
-- of it was verified last. ADD COLUMN IF NOT EXISTS is MariaDB's alone.
SET @add_columns = IF(
    EXISTS (
        SELECT 1 FROM information_schema.columns
        WHERE table_schema = DATABASE() AND table_name = 'book_audit' AND column_name = 'whole_at'
    ),
    'DO 0',
    'ALTER TABLE book_audit
         ADD COLUMN tx_hash BINARY(32) NULL COMMENT ''of the entry seq'',
         ADD COLUMN whole_at DATETIME(6) NULL COMMENT ''when it was last verified from genesis'''
);
PREPARE add_columns FROM @add_columns;
EXECUTE add_columns;
DEALLOCATE PREPARE add_columns
