-- A broker's clients and counterparts. partner_id is 48 bits, printed as FO- and 12 hex digits. What
-- tells who somebody is stands here only and can be erased: it is neither chained nor in the feed.
CREATE TABLE IF NOT EXISTS partner (
    broker_id           BIGINT UNSIGNED NOT NULL,
    partner_id          BIGINT UNSIGNED NOT NULL,
    kind                VARCHAR(8)      NOT NULL COMMENT 'online, offline',
    display_name        VARCHAR(120)    NOT NULL,
    search_name         VARCHAR(240)    CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'the name in lower case',
    phone               VARCHAR(32)     NULL,
    contacts            VARCHAR(1000)   NULL,
    note                VARCHAR(1000)   NULL,
    platform_broker_id  BIGINT UNSIGNED NULL COMMENT 'of an online one: the broker that it is',
    state               VARCHAR(8)      NOT NULL COMMENT 'active, archived',
    created_at          DATETIME(6)     NOT NULL,
    updated_at          DATETIME(6)     NOT NULL,
    change_seq          BIGINT UNSIGNED NOT NULL DEFAULT 0,
    PRIMARY KEY (broker_id, partner_id),
    UNIQUE KEY partner_platform (broker_id, platform_broker_id),
    KEY partner_newest (broker_id, created_at, partner_id),
    KEY partner_name (broker_id, search_name),
    KEY partner_places (broker_id, kind, state),
    KEY partner_change (broker_id, change_seq)
) ENGINE = InnoDB
