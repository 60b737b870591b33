-- How far the log of chain heads has a request's events: logged_seq of the log numbered logged_in.
-- unlogged says whether there are newer ones, by whoever wrote them, so a process of an earlier
-- release need not know.
SET @change = IF(
    EXISTS (
        SELECT 1 FROM information_schema.columns
        WHERE table_schema = DATABASE() AND table_name = 'network_request' AND column_name = 'unlogged'
    ),
    'DO 0',
    'ALTER TABLE network_request
         ADD COLUMN logged_seq INT UNSIGNED NOT NULL DEFAULT 0,
         ADD COLUMN logged_in  INT UNSIGNED NOT NULL DEFAULT 0,
         ADD COLUMN unlogged   BOOLEAN AS (event_seq > logged_seq) VIRTUAL'
);
PREPARE a_change FROM @change;
EXECUTE a_change;
DEALLOCATE PREPARE a_change
