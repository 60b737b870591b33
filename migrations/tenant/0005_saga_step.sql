-- The outcome of a saga's step in this book, written once with its effect: the first writer
-- wins, nobody decides it again. An undo that comes before its action leaves `tombstone`.
CREATE TABLE IF NOT EXISTS saga_step (
    broker_id   BIGINT UNSIGNED   NOT NULL,
    saga_id     BINARY(16)        NOT NULL,
    step        SMALLINT UNSIGNED NOT NULL,
    direction   VARCHAR(4)        NOT NULL COMMENT 'do, undo',
    outcome     VARCHAR(10)       NOT NULL COMMENT 'done, refused, tombstone',
    reason      JSON              NULL,
    created_at  DATETIME(6)       NOT NULL,
    PRIMARY KEY (broker_id, saga_id, step, direction)
) ENGINE = InnoDB
