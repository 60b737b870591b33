-- When a person gave it to somebody, what the last try to move it came to, and since when what the
-- provider says of it is not what the top-up was credited: nobody moves it then.
ALTER TABLE pm.psp_incoming
    ADD COLUMN IF NOT EXISTS given_at    TIMESTAMPTZ NULL,
    ADD COLUMN IF NOT EXISTS last_error  TEXT        NULL,
    ADD COLUMN IF NOT EXISTS disputed_at TIMESTAMPTZ NULL
