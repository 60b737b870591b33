-- What was given to somebody who hasn't got it yet, the longest untouched first.
CREATE INDEX IF NOT EXISTS psp_incoming_to_move_idx ON pm.psp_incoming (updated_at, id)
    WHERE status IN ('waiting', 'suspense', 'unknown') AND wallet IS NOT NULL
