-- Hash-chained per request. `payload` is in the hash; `private` (free text, personal data)
-- stands beside it with its digest in the payload, so that it can be erased.
CREATE TABLE IF NOT EXISTS network_request_event (
    request_id       BIGINT UNSIGNED NOT NULL,
    seq              INT UNSIGNED    NOT NULL,
    kind             VARCHAR(32)     NOT NULL,
    actor_broker_id  BIGINT UNSIGNED NULL COMMENT 'NULL: the network itself',
    actor            VARCHAR(80)     NOT NULL COMMENT 'subject of the token, or the worker',
    at               DATETIME(6)     NOT NULL,
    payload          JSON            NOT NULL,
    private          JSON            NULL,
    prev_hash        BINARY(32)      NOT NULL,
    event_hash       BINARY(32)      NOT NULL,
    PRIMARY KEY (request_id, seq)
) ENGINE = InnoDB
