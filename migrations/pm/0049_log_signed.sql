-- The last state of each log of chain heads that was signed, kept apart from the master that has the
-- log: a master that was restored from an older backup signs nothing that contradicts it.
CREATE TABLE IF NOT EXISTS pm.log_signed (
    name        TEXT        NOT NULL,
    log_number  BIGINT      NOT NULL,
    origin      TEXT        NOT NULL,
    size        BIGINT      NOT NULL,
    root        BYTEA       NOT NULL,
    signed_at   TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (name, log_number)
)
