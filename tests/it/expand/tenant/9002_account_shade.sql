ALTER TABLE account ADD COLUMN shade INT NOT NULL DEFAULT 7, ADD KEY account_shade (broker_id, shade)
