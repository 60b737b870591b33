-- Every write of a book holds this row in share mode and checks state and epoch, so that a
-- move can stop writers by taking it exclusively for a moment.
CREATE TABLE IF NOT EXISTS book_fence (
    broker_id   BIGINT UNSIGNED NOT NULL PRIMARY KEY,
    state       VARCHAR(8)      NOT NULL COMMENT 'open, closed, moved',
    epoch       BIGINT UNSIGNED NOT NULL,
    change_seq  BIGINT UNSIGNED NOT NULL DEFAULT 0,
    created_at  DATETIME(6)     NOT NULL
) ENGINE = InnoDB
