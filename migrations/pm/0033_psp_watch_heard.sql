-- When the provider last said what state the payment is in.
ALTER TABLE pm.psp_watch ADD COLUMN IF NOT EXISTS heard_at TIMESTAMPTZ NULL
