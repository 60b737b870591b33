-- Every write in a book takes the next number, under this row's lock, and leaves it in each row that
-- it inserts or changes: so a copy of the book can be brought up to date by what has changed since.
SET @change = IF(
    EXISTS (
        SELECT 1 FROM information_schema.columns
        WHERE table_schema = DATABASE() AND table_name = 'chain_head' AND column_name = 'change_seq'
    ),
    'DO 0',
    'ALTER TABLE chain_head ADD COLUMN change_seq BIGINT UNSIGNED NOT NULL DEFAULT 0'
);
PREPARE a_change FROM @change;
EXECUTE a_change;
DEALLOCATE PREPARE a_change
