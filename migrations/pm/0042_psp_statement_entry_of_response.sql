CREATE INDEX IF NOT EXISTS psp_statement_entry_of_response_idx
    ON pm.psp_statement_entry (psp_name, response_id)
