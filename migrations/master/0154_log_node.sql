-- The roots of all full subtrees of a log, its leaves' hashes too (level 0): a proof, and the root,
-- are made of a few of them.
CREATE TABLE IF NOT EXISTS log_node (
    log_number  INT UNSIGNED     NOT NULL,
    level       TINYINT UNSIGNED NOT NULL,
    node_index  BIGINT UNSIGNED  NOT NULL,
    hash        BINARY(32)       NOT NULL,
    PRIMARY KEY (log_number, level, node_index)
) ENGINE = InnoDB
