-- What brokers have set for rounds of netting; without a row a broker is asked each time.
CREATE TABLE IF NOT EXISTS netting_setting (
    broker_id     BIGINT UNSIGNED NOT NULL PRIMARY KEY,
    auto_approve  BOOLEAN         NOT NULL,
    changed_by    VARCHAR(80)     NOT NULL,
    changed_at    DATETIME(6)     NOT NULL
) ENGINE = InnoDB
