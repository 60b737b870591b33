-- One row. Whoever lets something new into the network holds it in share mode until the commit and
-- finds the version that was looked at; whoever changes what may start raises the version. So
-- nothing new commits once a pause has answered.
CREATE TABLE IF NOT EXISTS pause_gate (
    gate     TINYINT UNSIGNED NOT NULL PRIMARY KEY,
    version  BIGINT UNSIGNED  NOT NULL
) ENGINE = InnoDB
