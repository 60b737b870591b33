-- Why what a move has left is waited for no longer, in a database that is lost. ADD COLUMN IF NOT
-- EXISTS is MariaDB's alone.
SET @change = IF(
    EXISTS (
        SELECT 1 FROM information_schema.columns
        WHERE table_schema = DATABASE() AND table_name = 'broker_move' AND column_name = 'abandoned_because'
    ),
    'DO 0',
    'ALTER TABLE broker_move
         ADD COLUMN abandoned_because VARCHAR(500) NULL COMMENT ''of a move that is abandoned'''
);
PREPARE a_change FROM @change;
EXECUTE a_change;
DEALLOCATE PREPARE a_change
