-- Who did it, where a key is not of one client alone: wallets are funded by any operator.
ALTER TABLE pm.idempotency_key ADD COLUMN IF NOT EXISTS made_by VARCHAR(80) NULL
