-- How far the log of chain heads has a book: logged_seq of the log numbered logged_in. unlogged says
-- whether the head is newer, by whoever wrote it, so a process of an earlier release need not know.
SET @change = IF(
    EXISTS (
        SELECT 1 FROM information_schema.columns
        WHERE table_schema = DATABASE() AND table_name = 'chain_head' AND column_name = 'unlogged'
    ),
    'DO 0',
    'ALTER TABLE chain_head
         ADD COLUMN logged_seq BIGINT UNSIGNED NOT NULL DEFAULT 0,
         ADD COLUMN logged_in  INT UNSIGNED    NOT NULL DEFAULT 0,
         ADD COLUMN unlogged   BOOLEAN AS (seq > logged_seq) VIRTUAL'
);
PREPARE a_change FROM @change;
EXECUTE a_change;
DEALLOCATE PREPARE a_change
