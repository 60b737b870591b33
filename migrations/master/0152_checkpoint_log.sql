-- The logs of chain heads: the last one is appended to, under the lock of its row. One that follows
-- another has in its first leaf, and in a signed statement, where the one before ended.
CREATE TABLE IF NOT EXISTS checkpoint_log (
    log_number  INT UNSIGNED    NOT NULL PRIMARY KEY,
    origin      VARCHAR(200)    NOT NULL,
    size        BIGINT UNSIGNED NOT NULL,
    pass_at     DATETIME(6)     NOT NULL COMMENT 'when heads are looked for next',
    begun_at    DATETIME(6)     NOT NULL,
    begun_by    VARCHAR(80)     NULL,
    reason      VARCHAR(500)    NULL COMMENT 'why a new one was begun',
    statement   TEXT            NULL COMMENT 'that it was, as a signed note'
) ENGINE = InnoDB
