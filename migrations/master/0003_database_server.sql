-- Where databases may live. The connection string stands in the configuration under this name.
CREATE TABLE IF NOT EXISTS database_server (
    name         VARCHAR(32)  NOT NULL PRIMARY KEY,
    capacity     INT UNSIGNED NOT NULL COMMENT 'databases it may hold',
    accepts_new  BOOLEAN      NOT NULL DEFAULT TRUE,
    created_at   DATETIME(6)  NOT NULL
) ENGINE = InnoDB
