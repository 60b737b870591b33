-- Every call to a provider and its answer, secrets masked: written before the next one is made.
CREATE TABLE IF NOT EXISTS pm.psp_call (
    id          UUID         NOT NULL PRIMARY KEY,
    intent_id   UUID         NOT NULL,
    psp_name    TEXT         NOT NULL,
    operation   TEXT         NOT NULL,
    rq_uid      TEXT         NULL,
    request     JSONB        NOT NULL,
    http_status INTEGER      NULL,
    response    JSONB        NULL,
    error       TEXT         NULL,
    took_us     BIGINT       NOT NULL,
    called_at   TIMESTAMPTZ  NOT NULL
)
