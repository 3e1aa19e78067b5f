-- What a relay keeps in the outbox' database. Its texts are bytes (UTF-8): they compare exactly, whatever a collation says.
CREATE TABLE IF NOT EXISTS millrace_relay_failures (
    outbox          varbinary(260)  NOT NULL,  -- schema.table
    row_id          varbinary(2048) NOT NULL,
    row_key         varbinary(2048),           -- rows of this key wait, if an order was asked for
    position        bigint,                    -- their order, if they come from the binlog
    attempts        int             NOT NULL,
    reason          varchar(32)     NOT NULL,  -- unroutable, refused, too_large, broken
    error           text CHARACTER SET utf8mb4 NOT NULL,
    first_failed_at datetime(6)     NOT NULL,  -- these are UTC
    last_failed_at  datetime(6)     NOT NULL,
    next_attempt_at datetime(6),               -- NULL: never, it is dead
    dead_at         datetime(6),
    stored_row      longtext CHARACTER SET utf8mb4,  -- the row as JSON, where the outbox does not hold it any more
    PRIMARY KEY (outbox, row_id),
    KEY millrace_relay_failures_key (outbox, row_key(255))
) ENGINE = InnoDB
