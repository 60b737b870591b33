-- Where a broker's plan puts its book, while it is not there: workers begin the move.
SET @change = IF(
    EXISTS (
        SELECT 1 FROM information_schema.columns
        WHERE table_schema = DATABASE() AND table_name = 'broker' AND column_name = 'mode_wanted'
    ),
    'DO 0',
    'ALTER TABLE broker
         ADD COLUMN mode_wanted VARCHAR(4) NULL COMMENT ''SOLO, FULL; NULL: it is where it should be'',
         ADD KEY broker_mode_wanted (mode_wanted, broker_id)'
);
PREPARE a_change FROM @change;
EXECUTE a_change;
DEALLOCATE PREPARE a_change
