-- Which log the marks in a database (logged_in) are of, so that those of a log before are taken
-- back, once, when a new one begins. The master itself has empty names.
CREATE TABLE IF NOT EXISTS log_source (
    server_name    VARCHAR(64)  NOT NULL,
    database_name  VARCHAR(64)  NOT NULL,
    log_number     INT UNSIGNED NOT NULL,
    PRIMARY KEY (server_name, database_name)
) ENGINE = InnoDB
