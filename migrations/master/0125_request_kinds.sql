-- Requests that repay obligations, and orders: what only they have. credit_… is what a request takes
-- of its creditor's credit line from its acceptance to its end. is_order follows from the id, whose
-- bit 48 says so: OR- instead of NR-. ADD COLUMN IF NOT EXISTS is MariaDB's alone.
SET @change = IF(
    EXISTS (
        SELECT 1 FROM information_schema.columns
        WHERE table_schema = DATABASE() AND table_name = 'network_request' AND column_name = 'settles'
    ),
    'DO 0',
    'ALTER TABLE network_request
         ADD COLUMN settles            JSON            NULL COMMENT ''of a settlement: who owes, and which obligation'',
         ADD COLUMN auto_confirm       BOOLEAN         NOT NULL DEFAULT FALSE COMMENT ''of an order: executed is confirmed'',
         ADD COLUMN pickup_hash        VARCHAR(128)    NULL COMMENT ''of a payout: the code, as a password is kept'',
         ADD COLUMN is_order           BOOLEAN         NOT NULL DEFAULT FALSE,
         ADD COLUMN credit_debtor_id   BIGINT UNSIGNED NULL,
         ADD COLUMN credit_creditor_id BIGINT UNSIGNED NULL,
         ADD COLUMN credit_amount      BIGINT UNSIGNED NULL,
         ADD KEY request_author_orders (author_broker_id, is_order, created_at, request_id),
         ADD KEY request_target_orders (target_broker_id, is_order, created_at, request_id),
         ADD KEY request_credit (credit_debtor_id, credit_creditor_id, currency_code, credit_amount)'
);
PREPARE a_change FROM @change;
EXECUTE a_change;
DEALLOCATE PREPARE a_change
