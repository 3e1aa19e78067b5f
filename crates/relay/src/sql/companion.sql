-- What the relay keeps beside the outbox. Nothing here is needed by the application.
CREATE SCHEMA IF NOT EXISTS millrace;

-- One row for each outbox row whose message was not taken. Confirmed rows leave no trace.
CREATE TABLE IF NOT EXISTS millrace.relay_failures (
    outbox          text        NOT NULL,  -- schema.table, or slot/prefix for messages without a table
    row_id          text        NOT NULL,
    key             text,                  -- rows of this key wait, if an order was asked for
    position        bigint,                -- order of rows that are stored here, lowest first
    attempts        integer     NOT NULL,
    reason          text        NOT NULL,  -- unroutable, refused, too_large, broken; waiting: behind another of its key
    error           text        NOT NULL,
    first_failed_at timestamptz NOT NULL DEFAULT now(),
    last_failed_at  timestamptz NOT NULL DEFAULT now(),
    next_attempt_at timestamptz,           -- NULL: never, it is dead
    dead_at         timestamptz,
    stored_row      jsonb,                 -- the row itself, where the outbox does not hold it any more
    PRIMARY KEY (outbox, row_id)
);
CREATE INDEX IF NOT EXISTS relay_failures_due
    ON millrace.relay_failures (outbox, next_attempt_at) WHERE dead_at IS NULL;
CREATE INDEX IF NOT EXISTS relay_failures_key
    ON millrace.relay_failures (outbox, key, position);

-- Every replication slot that a relay uses: one that was here and is gone means lost changes.
CREATE TABLE IF NOT EXISTS millrace.relay_slots (
    slot           text        PRIMARY KEY,
    outbox         text        NOT NULL,
    publication    text        NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT now(),
    confirmed_lsn  pg_lsn,
    confirmed_at   timestamptz,            -- when confirmed_lsn was last written here
    last_commit_at timestamptz             -- commit time of the last transaction confirmed as a whole
);
ALTER TABLE millrace.relay_slots
    ADD COLUMN IF NOT EXISTS partial_commit pg_lsn,   -- of the transaction whose commit is written there, rows ...
    ADD COLUMN IF NOT EXISTS partial_below  pg_lsn,   -- ... that were written before this place are done, too
    ADD COLUMN IF NOT EXISTS system_id      text,     -- whose log these are places of: pg_control_system() ...
    ADD COLUMN IF NOT EXISTS timeline       integer,  -- ... and which course of it
    ADD COLUMN IF NOT EXISTS lost           text,     -- why the slot cannot be read on, though it is there
    ADD COLUMN IF NOT EXISTS published      text;     -- oids of the publication, of the table's entry in it, of the table
