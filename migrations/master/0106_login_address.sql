-- Address blocks from which a login has proved itself: what strangers do elsewhere makes nobody
-- wait there.
CREATE TABLE IF NOT EXISTS login_address (
    subject    BINARY(32)  NOT NULL PRIMARY KEY COMMENT 'SHA-256 of login and address block',
    proved_at  DATETIME(6) NOT NULL,
    KEY address_proved (proved_at)
) ENGINE = InnoDB
