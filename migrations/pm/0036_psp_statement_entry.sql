-- The lines of providers' statements, as each stands in its file. `import_id` is computed from the
-- file. Amounts are minor units; `response_id` is empty where the provider has told none.
CREATE TABLE IF NOT EXISTS pm.psp_statement_entry (
    import_id     UUID         NOT NULL,
    line_no       BIGINT       NOT NULL,
    psp_name      TEXT         NOT NULL,
    uid           TEXT         NOT NULL,
    response_id   TEXT         NOT NULL,
    currency_code TEXT         NOT NULL,
    amount        BIGINT       NOT NULL,
    status        TEXT         NOT NULL,
    paid_at       TIMESTAMPTZ  NOT NULL,
    imported_at   TIMESTAMPTZ  NOT NULL,
    PRIMARY KEY (import_id, line_no),
    CONSTRAINT psp_statement_entry_status_chk CHECK (status IN ('paid', 'returned'))
)
