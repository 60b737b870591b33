-- Of what was watched before, when it was heard of was not kept.
UPDATE pm.psp_watch SET heard_at = now() WHERE heard_at IS NULL
