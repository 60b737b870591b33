-- Public halves of the keys that sign access tokens, so that every process verifies what any
-- other has signed. Private halves are files that the configuration names and never here: who
-- can read the master, or a backup of it, can't make tokens.
CREATE TABLE IF NOT EXISTS signing_key (
    kid             VARCHAR(64) NOT NULL PRIMARY KEY COMMENT 'RFC 7638 thumbprint',
    public_key      BINARY(32)  NOT NULL COMMENT 'Ed25519',
    signs_from      DATETIME(6) NOT NULL COMMENT 'published before it is used',
    verifies_until  DATETIME(6) NULL COMMENT 'set when retired: it signs nothing more',
    created_at      DATETIME(6) NOT NULL
) ENGINE = InnoDB
