-- The number of the write that inserted or last changed the row; 0 before writes were numbered.
SET @change = IF(
    EXISTS (
        SELECT 1 FROM information_schema.columns
        WHERE table_schema = DATABASE() AND table_name = 'reservation' AND column_name = 'change_seq'
    ),
    'DO 0',
    'ALTER TABLE reservation ADD COLUMN change_seq BIGINT UNSIGNED NOT NULL DEFAULT 0, ADD KEY reservation_change (broker_id, change_seq)'
);
PREPARE a_change FROM @change;
EXECUTE a_change;
DEALLOCATE PREPARE a_change
