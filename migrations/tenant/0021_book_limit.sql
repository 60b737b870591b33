-- How many active offline partners the book may have, and which change of the broker's plan has said
-- so last. Read and written under the chain head's lock, like the partners that it bounds.
CREATE TABLE IF NOT EXISTS book_limit (
    broker_id         BIGINT UNSIGNED NOT NULL PRIMARY KEY,
    offline_partners  INT UNSIGNED    NULL COMMENT 'NULL: any number',
    plan_number       BIGINT UNSIGNED NOT NULL COMMENT 'of the change that was last answered here',
    refused_at        BIGINT UNSIGNED NULL COMMENT 'that change was refused: so many were there',
    updated_at        DATETIME(6)     NOT NULL,
    change_seq        BIGINT UNSIGNED NOT NULL DEFAULT 0,
    KEY book_limit_change (broker_id, change_seq)
) ENGINE = InnoDB
