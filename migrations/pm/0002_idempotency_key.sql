-- Which intention of which client did what here: the row is written in the transaction of the
-- effect. `fingerprint` is the request's, `subject` what it made.
CREATE TABLE IF NOT EXISTS pm.idempotency_key (
    client           VARCHAR(80)  NOT NULL,
    idempotency_key  VARCHAR(128) NOT NULL,
    fingerprint      BYTEA        NOT NULL CHECK (octet_length(fingerprint) = 32),
    subject          VARCHAR(64)  NOT NULL,
    created_at       TIMESTAMPTZ  NOT NULL,
    PRIMARY KEY (client, idempotency_key)
)
