-- The open orders to all in a city, newest first. ADD KEY IF NOT EXISTS is MariaDB's alone.
SET @add_key = IF(
    EXISTS (
        SELECT 1 FROM information_schema.statistics
        WHERE table_schema = DATABASE() AND table_name = 'network_request'
          AND index_name = 'request_open_orders'
    ),
    'DO 0',
    'ALTER TABLE network_request ADD KEY request_open_orders
         (is_order, broadcast, status, city_code, created_at, request_id)'
);
PREPARE add_key FROM @add_key;
EXECUTE add_key;
DEALLOCATE PREPARE add_key
