CREATE TABLE IF NOT EXISTS alert (
    alert_id     BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
    kind         VARCHAR(40)     NOT NULL,
    subject      VARCHAR(80)     NOT NULL,
    message      TEXT            NOT NULL,
    details      JSON            NOT NULL,
    created_at   DATETIME(6)     NOT NULL,
    resolved_at  DATETIME(6)     NULL,
    UNIQUE KEY alert_once (kind, subject),
    KEY alert_open (resolved_at, created_at)
) ENGINE = InnoDB
