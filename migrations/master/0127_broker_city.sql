-- The cities in which a broker executes orders: orders to all go to those who serve their city.
CREATE TABLE IF NOT EXISTS broker_city (
    broker_id   BIGINT UNSIGNED NOT NULL,
    city_code   VARCHAR(16)     NOT NULL,
    created_at  DATETIME(6)     NOT NULL,
    PRIMARY KEY (broker_id, city_code),
    KEY broker_city_code (city_code, broker_id)
) ENGINE = InnoDB
