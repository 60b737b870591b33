-- The payment manager's own: everything of it is in this schema.
CREATE SCHEMA IF NOT EXISTS pm
