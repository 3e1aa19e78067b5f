-- How far relays have read the binlog. A place is of one server; its gtid finds it again on another.
CREATE TABLE IF NOT EXISTS millrace_relay_places (
    slot           varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL PRIMARY KEY,
    outbox         varbinary(260)  NOT NULL,  -- schema.table
    is_begun       boolean         NOT NULL,  -- the table was not read to its end yet
    log_file       varchar(512) CHARACTER SET utf8mb4 NOT NULL,
    log_position   bigint unsigned NOT NULL,
    gtid           text CHARACTER SET utf8mb4 NOT NULL,  -- of everything before the place
    last_commit    bigint,                    -- microseconds since 2000, UTC
    partial_commit bigint unsigned,           -- a transaction behind the place that is done in part
    partial_below  bigint unsigned,
    updated_at     datetime(6)     NOT NULL
) ENGINE = InnoDB
