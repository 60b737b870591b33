-- What is paused, and everything that was: rows are never deleted. Of one thing at most one is
-- open; NULLs don't count for a unique key.
CREATE TABLE IF NOT EXISTS pause (
    pause_id       BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
    scope          VARCHAR(8)      NOT NULL COMMENT 'network, broker, currency',
    broker_id      BIGINT UNSIGNED NOT NULL COMMENT '0 where it is not a broker''s',
    currency_code  VARCHAR(16)     NOT NULL COMMENT 'empty where it is not a currency''s',
    is_open        BOOLEAN         NULL COMMENT '1, or NULL once it is lifted',
    reason         VARCHAR(500)    NOT NULL,
    paused_by      VARCHAR(80)     NOT NULL COMMENT 'subject of the token, or who was at the command line',
    paused_at      DATETIME(6)     NOT NULL,
    lifted_by      VARCHAR(80)     NULL,
    lifted_at      DATETIME(6)     NULL,
    lift_reason    VARCHAR(500)    NULL,
    UNIQUE KEY pause_open (scope, broker_id, currency_code, is_open)
) ENGINE = InnoDB
