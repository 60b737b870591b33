CREATE INDEX IF NOT EXISTS psp_statement_entry_of_uid_idx
    ON pm.psp_statement_entry (psp_name, uid)
