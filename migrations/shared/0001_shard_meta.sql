-- What a shard has besides its books: which shard it is, to refuse a connection string
-- that points at the wrong database.
CREATE TABLE IF NOT EXISTS shard_meta (
    only_row    TINYINT UNSIGNED NOT NULL PRIMARY KEY,
    shard_id    INT UNSIGNED     NOT NULL,
    created_at  DATETIME(6)      NOT NULL
) ENGINE = InnoDB
