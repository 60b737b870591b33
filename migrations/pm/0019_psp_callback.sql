-- Every word that providers send of themselves, and what was made of it.
CREATE TABLE IF NOT EXISTS pm.psp_callback (
    id          UUID         NOT NULL PRIMARY KEY,
    psp_name    TEXT         NOT NULL,
    verdict     TEXT         NOT NULL,
    payment_id  TEXT         NULL,
    reference   TEXT         NULL,
    why         TEXT         NULL,
    body        TEXT         NOT NULL,
    received_at TIMESTAMPTZ  NOT NULL,
    CONSTRAINT psp_callback_verdict_chk CHECK (verdict IN
        ('taken', 'repeated', 'contradicts', 'not_signed', 'out_of_time', 'not_understood'))
)
