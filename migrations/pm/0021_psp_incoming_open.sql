-- What is yet to be worked on or to be looked at by a person.
CREATE INDEX IF NOT EXISTS psp_incoming_open_idx ON pm.psp_incoming (received_at, id)
    WHERE status IN ('waiting', 'suspense', 'unknown')
