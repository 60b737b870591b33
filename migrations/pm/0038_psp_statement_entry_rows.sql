-- What was taken in before lines were kept by their files. Each is a file of its own: which of them
-- stood together is not known any more.
INSERT INTO pm.psp_statement_entry (import_id, line_no, psp_name, uid, response_id, currency_code,
    amount, status, paid_at, imported_at)
SELECT md5(psp_name || ':' || uid || ':' || response_id)::uuid, 1, psp_name, uid, response_id,
    currency_code, amount, status, paid_at, imported_at
FROM pm.psp_statement_line
ON CONFLICT (import_id, line_no) DO NOTHING
