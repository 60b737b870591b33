-- What a provider's statement says that it has paid or taken in. Amounts are minor units.
CREATE TABLE IF NOT EXISTS pm.psp_statement_line (
    psp_name      TEXT         NOT NULL,
    uid           TEXT         NOT NULL,
    response_id   TEXT         NOT NULL,
    currency_code TEXT         NOT NULL,
    amount        BIGINT       NOT NULL,
    status        TEXT         NOT NULL,
    paid_at       TIMESTAMPTZ  NOT NULL,
    imported_at   TIMESTAMPTZ  NOT NULL,
    PRIMARY KEY (psp_name, uid, response_id),
    CONSTRAINT psp_statement_line_status_chk CHECK (status IN ('paid', 'returned'))
)
