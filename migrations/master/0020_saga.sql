CREATE TABLE IF NOT EXISTS saga (
    saga_id     BINARY(16)    NOT NULL PRIMARY KEY,
    kind        VARCHAR(24)   NOT NULL COMMENT 'accept, confirm, release',
    subject     VARCHAR(32)   NOT NULL COMMENT 'what it is about: NR-…',
    direction   VARCHAR(10)   NOT NULL COMMENT 'undecided, forward, back',
    status      VARCHAR(12)   NOT NULL COMMENT 'running, completed, compensating, compensated, stuck',
    reason      JSON          NULL COMMENT 'why it goes back or is stuck',
    requested   VARCHAR(12)   NULL COMMENT 'compensate: an admin asks to go back if that is still possible',
    created_at  DATETIME(6)   NOT NULL,
    updated_at  DATETIME(6)   NOT NULL,
    KEY saga_subject (subject, created_at),
    KEY saga_status (status, updated_at, saga_id)
) ENGINE = InnoDB
