-- When each book's chain is verified again, and what came of the last time.
CREATE TABLE IF NOT EXISTS book_audit (
    broker_id   BIGINT UNSIGNED NOT NULL PRIMARY KEY,
    due_at      DATETIME(6)     NOT NULL,
    audited_at  DATETIME(6)     NULL,
    seq         BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'the last entry that held',
    holds       BOOLEAN         NULL,
    KEY book_audit_due (due_at)
) ENGINE = InnoDB
