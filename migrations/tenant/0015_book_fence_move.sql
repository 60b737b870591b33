-- The move that has closed the book here, or copies it to here.
SET @change = IF(
    EXISTS (
        SELECT 1 FROM information_schema.columns
        WHERE table_schema = DATABASE() AND table_name = 'book_fence' AND column_name = 'move_id'
    ),
    'DO 0',
    'ALTER TABLE book_fence ADD COLUMN move_id BINARY(16) NULL'
);
PREPARE a_change FROM @change;
EXECUTE a_change;
DEALLOCATE PREPARE a_change
