-- A shard is `making` until its database is whole: until then only its making touches it. Rows of
-- before are whole. ADD COLUMN IF NOT EXISTS is MariaDB's alone.
SET @add_column = IF(
    EXISTS (
        SELECT 1 FROM information_schema.columns
        WHERE table_schema = DATABASE() AND table_name = 'shared_shard' AND column_name = 'state'
    ),
    'DO 0',
    'ALTER TABLE shared_shard ADD COLUMN state VARCHAR(8) NOT NULL DEFAULT ''open'' COMMENT ''making, open'''
);
PREPARE add_column FROM @add_column;
EXECUTE add_column;
DEALLOCATE PREPARE add_column
