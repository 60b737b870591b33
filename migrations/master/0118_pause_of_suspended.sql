-- A broker's suspension is a pause of it, with a reason. Of those from before nobody wrote down
-- reason and time.
INSERT IGNORE INTO pause
    (scope, broker_id, currency_code, is_open, reason, paused_by, paused_at)
SELECT 'broker', broker_id, '', 1, 'suspended before reasons were kept', 'unknown', created_at
FROM broker WHERE state = 'suspended'
