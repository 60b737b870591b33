-- Disputes as lists and workers look for them. What has happened in one is in its request's events;
-- this follows from them.
CREATE TABLE IF NOT EXISTS dispute (
    request_id  BIGINT UNSIGNED NOT NULL PRIMARY KEY,
    status      VARCHAR(8)      NOT NULL COMMENT 'open, heard, decided, over',
    opened_by   BIGINT UNSIGNED NOT NULL COMMENT 'a broker',
    against     BIGINT UNSIGNED NOT NULL COMMENT 'a broker',
    arbiter     VARCHAR(80)     NULL COMMENT 'the subject of who hears it',
    due_at      DATETIME(6)     NULL COMMENT 'when silence decides it, or a decision is final',
    opened_at   DATETIME(6)     NOT NULL,
    updated_at  DATETIME(6)     NOT NULL,
    KEY dispute_newest (opened_at, request_id),
    KEY dispute_of_status (status, opened_at, request_id),
    KEY dispute_due (due_at, request_id),
    KEY dispute_opened_by (opened_by, opened_at, request_id),
    KEY dispute_against (against, opened_at, request_id)
) ENGINE = InnoDB
