-- The saga that has booked a request: it stays when what has completed is disputed.
SET @change = IF(
    EXISTS (
        SELECT 1 FROM information_schema.columns
        WHERE table_schema = DATABASE() AND table_name = 'network_request'
          AND column_name = 'booked_saga_id'
    ),
    'DO 0',
    'ALTER TABLE network_request ADD COLUMN booked_saga_id BINARY(16) NULL'
);
PREPARE a_change FROM @change;
EXECUTE a_change;
DEALLOCATE PREPARE a_change;
-- What had completed before says so in its events. Told again it changes nothing.
UPDATE network_request r
JOIN network_request_event e ON e.request_id = r.request_id AND e.kind = 'completed'
SET r.booked_saga_id =
    UNHEX(REPLACE(JSON_UNQUOTE(JSON_EXTRACT(e.payload, '$.saga')), '-', ''))
WHERE r.booked_saga_id IS NULL
