-- A change of plan that is under way: the plan that it leads to, and the number of the change. Rows
-- of before have none. ADD COLUMN IF NOT EXISTS is MariaDB's alone.
SET @add_column = IF(
    EXISTS (
        SELECT 1 FROM information_schema.columns
        WHERE table_schema = DATABASE() AND table_name = 'broker' AND column_name = 'plan_wanted'
    ),
    'DO 0',
    'ALTER TABLE broker
         ADD COLUMN plan_wanted VARCHAR(8) NULL COMMENT ''starter, growth, pro; NULL: no change is under way'',
         ADD COLUMN plan_number BIGINT UNSIGNED NOT NULL DEFAULT 0,
         ADD KEY broker_plan_wanted (plan_wanted, broker_id)'
);
PREPARE add_column FROM @add_column;
EXECUTE add_column;
DEALLOCATE PREPARE add_column
