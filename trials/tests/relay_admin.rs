//! What an operator does with an outbox, by the real commands on a real PostgreSQL: install, doctor, status, replay,
//! purge. One cluster for the whole file, a database for each test.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "starts processes, runs writers beside them, and says what is skipped"
)]

#[path = "support/relay.rs"]
mod support;

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use support::{done, given};
use trials::chaos::broker::Kind;
use trials::postgres::{Options, Postgres};
use trials::relay::Stage;
use trials::relay::process::Relay;

/// Longer than anything here takes.
const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(120);

/// A database of one's own on the file's cluster, which goes with its last user.
struct Database {
    cluster: Arc<Postgres>,
    name: String,
}

/// What a command said.
struct Said {
    code: i32,
    out: String,
    err: String,
}

impl Said {
    #[track_caller]
    fn ok(self) -> String {
        assert_eq!(self.code, 0, "{}\n{}", self.out, self.err);
        self.out
    }

    fn all(&self) -> String {
        format!("exit {}\n{}\n{}", self.code, self.out, self.err)
    }
}

/// The test's database, or None where PostgreSQL is not installed, which is said.
fn database(name: &str) -> Option<Database> {
    static CLUSTER: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());
    let mut shared = CLUSTER.lock().unwrap();
    let cluster = match shared.upgrade() {
        Some(cluster) => cluster,
        None => match Postgres::start(&Options::default()) {
            Ok(cluster) => Arc::new(cluster),
            Err(trials::postgres::Error::Missing(what)) => {
                println!("skipped: {what}");
                return None;
            }
            Err(error) => panic!("{error}"),
        },
    };
    *shared = Arc::downgrade(&cluster);
    cluster.psql(&format!("CREATE DATABASE {name}")).unwrap();
    Some(Database { cluster, name: name.into() })
}

impl Database {
    #[track_caller]
    fn sql(&self, sql: &str) -> String {
        self.try_sql(sql).unwrap_or_else(|error| panic!("{error}"))
    }

    fn try_sql(&self, sql: &str) -> Result<String, String> {
        self.cluster.psql_in(&self.name, sql).map_err(|error| error.to_string())
    }

    fn relay(&self, arguments: &[&str]) -> Said {
        self.relay_as(&self.cluster.url_of(&self.name), arguments)
    }

    fn relay_as(&self, url: &str, arguments: &[&str]) -> Said {
        let mut command = Command::new(support::millrace());
        command.arg("relay").args(arguments).env("DATABASE_URL", url).stdin(Stdio::null());
        let output = command.output().unwrap();
        Said {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Findings of doctor with this grade, as `check: what`.
    fn findings(&self, grade: &str, arguments: &[&str]) -> Vec<String> {
        let said = self.relay(&[&["doctor", "--json"], arguments].concat());
        let report: serde_json::Value =
            serde_json::from_str(&said.out).unwrap_or_else(|_| panic!("{}", said.all()));
        let findings = report["findings"].as_array().unwrap();
        findings
            .iter()
            .filter(|finding| finding["grade"] == grade)
            .map(|finding| {
                format!(
                    "{}: {}",
                    finding["check"].as_str().unwrap(),
                    finding["what"].as_str().unwrap()
                )
            })
            .collect()
    }

    /// Everything that install can make, by name and definition.
    fn catalogue(&self) -> String {
        self.sql(
            "SELECT n.nspname, c.relname, c.relkind, c.oid, coalesce(pg_get_indexdef(i.indexrelid), '') \
             FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN pg_index i ON i.indexrelid = c.oid \
             WHERE n.nspname !~ '^(pg_|information_schema)' ORDER BY c.oid",
        )
    }
}

fn set(lines: &str) -> BTreeSet<String> {
    lines.lines().map(str::to_owned).collect()
}

/// Rows `1..=count` that are dead for `reason`, as the relay leaves them under `--on-success update`.
fn bury(database: &Database, first: u32, last: u32, reason: &str, ago: &str) {
    database.sql(&format!(
        "INSERT INTO outbox_messages (id, type, content, processed_on_utc, error) \
         SELECT ('00000000-0000-0000-0000-' || lpad(n::text, 12, '0'))::uuid, 't', '{{}}', now() - interval '{ago}', 'words' \
         FROM generate_series({first}, {last}) n; \
         INSERT INTO millrace.relay_failures (outbox, row_id, key, attempts, reason, error, dead_at) \
         SELECT 'public.outbox_messages', '00000000-0000-0000-0000-' || lpad(n::text, 12, '0'), \
           '00000000-0000-0000-0000-' || lpad(n::text, 12, '0'), 20, '{reason}', 'no queue for ' || n, \
           now() - interval '{ago}' FROM generate_series({first}, {last}) n"
    ));
}

fn pending(database: &Database) -> BTreeSet<String> {
    set(&database.sql(
        "SELECT ltrim(right(id::text, 12), '0') FROM outbox_messages WHERE processed_on_utc IS NULL AND error IS NULL",
    ))
}

fn numbers(range: std::ops::RangeInclusive<u32>) -> BTreeSet<String> {
    range.map(|number| number.to_string()).collect()
}

#[test]
fn installing_twice_changes_nothing() {
    let Some(database) = database("twice") else { return };
    for options in [
        &["install"][..],
        &["install", "--preset", "debezium"],
        &["install", "--table", "parted", "--partitions", "day", "--ahead", "3"],
        &["install", "--table", "ordered", "--order", "key", "--key-column", "type"],
        &["install", "--table", "kept", "--on-success", "archive"],
        &["install", "--table", "decoded", "--source", "wal"],
    ] {
        let first = database.relay(options).ok();
        assert!(first.contains("Done."), "{first}");
        let before = database.catalogue();
        let second = database.relay(options).ok();
        assert!(second.contains("Nothing was missing."), "{second}");
        assert_eq!(database.catalogue(), before, "{options:?}");
        database.sql("SELECT 1 FROM millrace.relay_failures, millrace.relay_slots");
    }
    assert_eq!(database.sql("SELECT pubinsert, pubupdate FROM pg_publication"), "t|f");
}

#[test]
fn what_install_prints_is_what_it_would_run() {
    let Some(database) = database("printed") else { return };
    let before = database.catalogue();
    let options = ["install", "--partitions", "month", "--order", "strict", "--source", "wal"];
    let script = database.relay(&[&options[..], &["--print"]].concat()).ok();
    assert_eq!(database.catalogue(), before, "--print changed something");
    database.sql(&script);
    let after = database.relay(&options).ok();
    assert!(after.contains("Nothing was missing."), "{after}");
}

#[test]
fn every_difference_of_a_table_that_is_there_is_told_and_nothing_is_changed() {
    let Some(database) = database("differs") else { return };
    database.sql(
        "CREATE TABLE outbox_messages (id uuid, type text, content xml, occurred_on_utc timestamp, \
         processed_on_utc timestamptz NOT NULL, errors text)",
    );
    let before = database.catalogue();
    let said = database.relay(&["install"]);
    assert_eq!(said.code, 1, "{}", said.all());
    for words in [
        "id is uuid: a row without an id",
        "content is xml",
        "occurred_on_utc is timestamp without time zone",
        "processed_on_utc is timestamp with time zone: it is NULL while",
        "has no column error",
        "nothing keeps public.outbox_messages from holding one id twice",
    ] {
        assert!(said.out.contains(words), "`{words}` is not in\n{}", said.all());
    }
    assert_eq!(database.catalogue(), before);
}

#[test]
fn a_table_with_rows_gets_its_index_without_stopping_its_writers() {
    let Some(database) = database("busy") else { return };
    let create = database.relay(&["install", "--print"]).ok();
    let table = create
        .lines()
        .skip_while(|line| !line.starts_with("CREATE TABLE"))
        .collect::<Vec<_>>()
        .join("\n");
    database.sql(table.split_once(';').unwrap().0);
    database.sql(
        "INSERT INTO outbox_messages (type, content) SELECT 't', '{}' FROM generate_series(1, 100)",
    );
    let plan = database.relay(&["install", "--print"]).ok();
    assert!(plan.contains("CREATE INDEX CONCURRENTLY"), "{plan}");
    // What an interrupted run leaves behind is replaced.
    let half = "CREATE INDEX outbox_messages_pending ON outbox_messages (occurred_on_utc, id) WHERE processed_on_utc IS NULL; \
                UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'outbox_messages_pending'::regclass";
    database.sql(half);
    database.relay(&["install"]).ok();
    let valid =
        "SELECT indisvalid FROM pg_index WHERE indexrelid = 'outbox_messages_pending'::regclass";
    assert_eq!(database.sql(valid), "t");
    assert!(database.relay(&["install"]).ok().contains("Nothing was missing."));
}

#[test]
fn partitions_of_a_table_with_rows_get_their_parts_of_the_index() {
    let Some(database) = database("parts") else { return };
    let options = ["install", "--partitions", "day", "--ahead", "2"];
    database.relay(&options).ok();
    database.sql(
        "INSERT INTO outbox_messages (type, content) VALUES ('t', '{}'); DROP INDEX outbox_messages_pending",
    );
    database.relay(&options).ok();
    let valid = "SELECT bool_and(indisvalid), count(*) FROM pg_index WHERE pg_get_indexdef(indexrelid) LIKE '%processed_on_utc IS NULL%'";
    assert_eq!(database.sql(valid), "t|5");
    let dropped = "SELECT relname FROM pg_class WHERE relname ~ '_p2' AND relkind = 'r' ORDER BY 1 DESC LIMIT 1";
    let last = database.sql(dropped);
    database.sql(&format!("DROP TABLE {last}"));
    let again = database.relay(&options).ok();
    assert!(again.contains("Done."), "{again}");
    assert_eq!(database.sql(dropped), last, "a partition that is missing is made again");
}

#[test]
fn a_fresh_installation_is_healthy_and_every_question_of_doctor_is_answered() {
    let Some(database) = database("fresh") else { return };
    database.relay(&["install"]).ok();
    // Slots are the cluster's, and another test makes some.
    let mut found = [database.findings("fail", &[]), database.findings("warn", &[])].concat();
    found.retain(|finding| !finding.starts_with("slots"));
    assert_eq!(found, [""; 0]);
    database.relay(&["install", "--source", "wal", "--order", "key", "--key-column", "type"]).ok();
    let unread: Vec<String> = [
        database.findings("warn", &["--source", "wal"]),
        database.findings("warn", &["--source", "messages"]),
    ]
    .concat()
    .into_iter()
    .filter(|finding| finding.starts_with("unread"))
    .collect();
    assert_eq!(unread, [""; 0]);
}

#[test]
fn doctor_finds_the_index_that_makes_an_insert_of_3_kb_fail() {
    let Some(database) = database("covering") else { return };
    database.relay(&["install"]).ok();
    database.sql(
        "DROP INDEX outbox_messages_pending; CREATE INDEX covering ON outbox_messages (occurred_on_utc, id) \
         INCLUDE (content) WHERE processed_on_utc IS NULL",
    );
    // Text that does not compress, since compressed content is what counts.
    let insert = |bytes: u32| {
        format!(
            "INSERT INTO outbox_messages (type, content) SELECT 't', to_jsonb(string_agg(md5(random()::text), '')) \
             FROM generate_series(1, {} / 32)",
            bytes
        )
    };
    database.sql(&insert(1000));
    let warned = database.findings("warn", &[]);
    assert!(
        warned
            .iter()
            .any(|finding| finding.starts_with("covering-index: covering holds a copy of content")),
        "{warned:?}"
    );
    let refused = database.try_sql(&insert(3200)).expect_err("the entry is too long");
    assert!(refused.contains("index row size") && refused.contains("2704"), "{refused}");
    // Near the limit it is no longer a warning, and the row is named.
    database.sql(&insert(2400));
    let failed = database.findings("fail", &[]);
    assert!(
        failed.iter().any(|finding| finding.contains("the largest of 2 rows looked at has 2,")),
        "{failed:?}"
    );
    // What doctor advises helps: a second index, then the first one goes.
    database.sql(
        "CREATE INDEX CONCURRENTLY outbox_messages_pending ON outbox_messages (occurred_on_utc, id) \
         WHERE processed_on_utc IS NULL",
    );
    database.sql("DROP INDEX CONCURRENTLY covering");
    database.sql(&insert(3200));
    assert_eq!(database.findings("fail", &[]), [""; 0]);
}

#[test]
fn doctor_names_what_is_wrong_with_a_bad_outbox() {
    let Some(database) = database("bad") else { return };
    database.relay(&["install", "--source", "wal"]).ok();
    database.sql(
        "DROP TABLE outbox_messages; CREATE UNLOGGED TABLE outbox_messages (id uuid NOT NULL, type text, content jsonb, \
           occurred_on_utc timestamp, processed_on_utc timestamptz, error varchar(100)); \
         INSERT INTO outbox_messages SELECT gen_random_uuid(), 't', '{}', now() - interval '3 hours' FROM generate_series(1, 7); \
         INSERT INTO outbox_messages SELECT id, 't', '{}', now() FROM outbox_messages LIMIT 1; \
         CREATE FUNCTION told() RETURNS trigger LANGUAGE plpgsql AS \
           $$ BEGIN PERFORM pg_notify('outbox', ''); RETURN NULL; END $$; \
         CREATE TRIGGER tell AFTER INSERT ON outbox_messages FOR EACH ROW EXECUTE FUNCTION told(); \
         ALTER TABLE outbox_messages SET (autovacuum_enabled = false); \
         ALTER TABLE outbox_messages ENABLE ROW LEVEL SECURITY; \
         ALTER ROLE postgres IN DATABASE bad SET idle_in_transaction_session_timeout = '2s'; \
         INSERT INTO millrace.relay_slots (slot, outbox, publication, confirmed_lsn) \
           VALUES ('gone', 'public.outbox_messages', 'p', '0/1'); \
         INSERT INTO millrace.relay_failures (outbox, row_id, attempts, reason, error, dead_at) \
           VALUES ('public.outbox_messages', '1', 1, 'broken', 'its headers are no object', now())",
    );
    database.sql("SELECT pg_create_logical_replication_slot('idle', 'pgoutput')");
    let failed = database.findings("fail", &["--order", "strict"]).join("\n");
    let warned = database.findings("warn", &["--order", "strict"]).join("\n");
    database.sql("SELECT pg_drop_replication_slot('idle')");
    for words in [
        "durability: the table is UNLOGGED",
        "columns: error is character varying(100)",
        "unique-id: nothing keeps",
        "unique-id: ids that are there twice",
        "index: no index begins with (occurred_on_utc, id) WHERE processed_on_utc IS NULL",
        "pending: 8 rows wait, the oldest for 3 h; no relay is connected",
        "failures: 1 rows are dead (broken); later rows of their keys wait; for example 1: its headers are no object",
        "dead-rows: autovacuum is off for outbox_messages",
        "slots: slot gone of public.outbox_messages was used by a relay and is gone",
    ] {
        assert!(failed.contains(words), "`{words}` is not in\n{failed}");
    }
    // Workers set that one for themselves.
    assert!(!failed.contains("timeouts"), "{failed}");
    for words in [
        "time-zone: occurred_on_utc is timestamp without time zone",
        "triggers: tell (told) notifies for each row",
        "order: an order was asked for",
        "slots: slot idle of bad has no reader",
        "slots: max_slot_wal_keep_size is not set",
    ] {
        assert!(warned.contains(words), "`{words}` is not in\n{warned}");
    }
    assert_eq!(database.relay(&["doctor"]).code, 1);
    database.sql("ALTER TABLE outbox_messages SET LOGGED; CREATE PUBLICATION everything FOR TABLE outbox_messages");
    let refused = database.try_sql("UPDATE outbox_messages SET processed_on_utc = now()");
    assert!(
        refused.is_err_and(|why| why.contains("does not have a replica identity")),
        "marking works"
    );
    let failed = database.findings("fail", &[]).join("\n");
    assert!(failed.contains("identity: publication everything publishes updates"), "{failed}");
}

#[test]
fn a_role_with_what_install_grants_lacks_nothing_and_without_it_doctor_says_what() {
    let Some(database) = database("least") else { return };
    database.sql("CREATE ROLE drainer LOGIN");
    database.relay(&["install"]).ok();
    let url = database.cluster.url_of("least").replace("postgres@", "drainer@");
    let before = database.relay_as(&url, &["doctor"]);
    assert!(
        before.code == 1 && before.out.contains("drainer lacks SELECT on public.outbox_messages"),
        "{}",
        before.all()
    );
    database.relay(&["install", "--grant-to", "drainer"]).ok();
    let after = database.relay_as(&url, &["doctor"]);
    assert!(after.out.contains("drainer may do what the relay does"), "{}", after.all());
    let refused = database.try_sql("SET ROLE drainer; UPDATE outbox_messages SET content = '1'");
    assert!(refused.is_err_and(|why| why.contains("permission denied")), "it may write content");
    let refused = database.try_sql("SET ROLE drainer; DELETE FROM outbox_messages");
    assert!(refused.is_err_and(|why| why.contains("permission denied")), "it may delete rows");
}

#[test]
fn a_role_that_may_not_look_at_others_sessions_is_told_so_and_not_that_all_is_well() {
    let Some(database) = database("masked") else { return };
    database.sql("CREATE ROLE masked LOGIN");
    database.relay(&["install", "--grant-to", "masked"]).ok();
    let url = database.cluster.url_of("masked").replace("postgres@", "masked@");
    let holder = Holding::begin(&database, "SELECT pg_current_xact_id()");
    let unread = |said: &Said| said.out.contains("1 sessions of other roles hold a snapshot");
    let masked = database.relay_as(&url, &["doctor"]);
    assert!(
        unread(&masked) && masked.out.contains("GRANT pg_monitor TO \"masked\""),
        "{}",
        masked.all()
    );
    assert!(!masked.out.contains("nothing old keeps dead rows"), "{}", masked.all());
    let seen = database.relay(&["doctor"]);
    assert!(!unread(&seen), "{}", seen.all());
    drop(holder);
}

/// A transaction that stays open until this is dropped.
struct Holding {
    runtime: tokio::runtime::Runtime,
    client: tokio_postgres::Client,
}

impl Holding {
    fn begin(database: &Database, sql: &str) -> Self {
        let threads =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = threads.unwrap();
        let url = database.cluster.url_of(&database.name);
        let client = runtime.block_on(trials::postgres::connect(&url)).unwrap();
        let begin = format!("BEGIN ISOLATION LEVEL REPEATABLE READ; {sql}");
        runtime.block_on(client.batch_execute(&begin)).unwrap();
        Self { runtime, client }
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        let _ = self.runtime.block_on(self.client.batch_execute("ROLLBACK"));
    }
}

#[test]
fn the_log_is_trusted_only_as_far_as_the_relay_itself_has_written_down() {
    let Some(database) = database("unread") else { return };
    database.relay(&["install", "--source", "wal"]).ok();
    database.sql(
        "INSERT INTO outbox_messages (type, content, occurred_on_utc) SELECT 't', '{}', now() - interval '9 days' \
           FROM generate_series(1, 10); \
         INSERT INTO millrace.relay_slots (slot, outbox, publication) VALUES ('unread', 'public.outbox_messages', 'p')",
    );
    // A slot as `resync` makes it: ahead of everything, and the table is not read yet.
    database.sql("SELECT pg_create_logical_replication_slot('unread', 'pgoutput')");
    let count = || database.sql("SELECT count(*) FROM outbox_messages");
    std::thread::scope(|scope| {
        let purge = scope.spawn(|| {
            database.relay(&["purge", "--source", "wal", "--slot", "unread", "--older-than", "7d"])
        });
        // The slot passes the place that purge waits for, and purge asks once more.
        let asked = "FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'millrace-admin' \
                     AND query LIKE '%confirmed_lsn%' AND state = 'idle'";
        until(&database, &format!("SELECT count(*) > 0 {asked}"));
        let advance = "SELECT pg_replication_slot_advance('unread', pg_current_wal_lsn())";
        database.sql(advance);
        let at = database.sql("SELECT clock_timestamp()");
        until(&database, &format!("SELECT count(*) > 0 {asked} AND query_start > '{at}'"));
        assert_eq!(count(), "10", "rows that nobody has published are gone");
        // The relay has read the table and says so.
        database.sql("UPDATE millrace.relay_slots SET confirmed_lsn = pg_current_wal_lsn()");
        let said = purge.join().unwrap().ok();
        assert!(said.contains("10 rows deleted"), "{said}");
    });
    assert_eq!(count(), "0");
    database.sql("SELECT pg_drop_replication_slot('unread')");
}

/// Asks until the answer is yes.
#[track_caller]
fn until(database: &Database, sql: &str) {
    let begun = std::time::Instant::now();
    while database.sql(sql) != "t" {
        assert!(begun.elapsed() < TIMEOUT, "not within {TIMEOUT:?}: {sql}");
        support::pause();
    }
}

#[test]
fn ids_that_no_row_can_have_do_not_stand_in_the_way_of_others() {
    let Some(database) = database("ids") else { return };
    database.relay(&["install"]).ok();
    database.sql("ALTER TABLE outbox_messages DROP CONSTRAINT outbox_messages_pkey");
    database.sql("ALTER TABLE outbox_messages ALTER COLUMN id DROP NOT NULL");
    bury(&database, 1, 3, "broken", "9 days");
    // A row without an id, as it was buried; and an id of the time when the column was text.
    database.sql(
        "INSERT INTO outbox_messages (id, type, content, processed_on_utc, error) \
           VALUES (NULL, 't', '{}', now() - interval '9 days', 'its id is NULL'); \
         INSERT INTO millrace.relay_failures (outbox, row_id, attempts, reason, error, dead_at) \
           SELECT 'public.outbox_messages', id, 1, 'broken', '', now() - interval '9 days' \
           FROM unnest(ARRAY['', 'order-7', '99999999999999999999']) id",
    );
    // What is dead was never published.
    database.relay(&["purge", "--older-than", "7d"]).ok();
    assert_eq!(database.sql("SELECT count(*) FROM outbox_messages"), "4");
    let published = database.relay(&["replay", "--processed", "--since", "30d", "--dry-run"]).ok();
    assert!(published.starts_with("0 published rows"), "{published}");

    let id = "00000000-0000-0000-0000-000000000002";
    let one = database.relay(&["replay", "--id", id, "--yes"]);
    assert!(one.out.contains("1 rows replayed"), "{}", one.all());
    let all = database.relay(&["replay", "--all-dead", "--yes"]);
    assert!(all.out.contains("2 rows replayed"), "{}", all.all());
    assert!(all.err.contains("3 rows were not replayed"), "{}", all.all());
    assert_eq!(pending(&database), numbers(1..=3));
    let purged = database.relay(&["purge", "--dead", "--older-than", "7d"]).ok();
    assert!(purged.contains("3 rows deleted"), "{purged}");
    assert_eq!(database.sql("SELECT count(*) FROM millrace.relay_failures"), "0");
    assert_eq!(pending(&database), numbers(1..=3));

    // Numbers, one of them too large for the column.
    database.sql(
        "DROP TABLE outbox_messages; CREATE TABLE outbox_messages (id integer PRIMARY KEY, type text, content jsonb, \
           occurred_on_utc timestamptz, processed_on_utc timestamptz, error text); \
         INSERT INTO outbox_messages VALUES (7, 't', '{}', now(), now(), 'words'); \
         INSERT INTO millrace.relay_failures (outbox, row_id, attempts, reason, error, dead_at) \
           SELECT 'public.outbox_messages', id, 1, 'broken', '', now() - interval '9 days' \
           FROM unnest(ARRAY['7', '-8', '3000000000', '', '7.5']) id",
    );
    let all = database.relay(&["replay", "--all-dead", "--yes"]);
    assert!(all.out.contains("1 rows replayed"), "{}", all.all());
    assert_eq!(database.sql("SELECT processed_on_utc IS NULL FROM outbox_messages"), "t");
}

#[test]
fn published_rows_of_the_log_are_stored_for_replay_whatever_their_columns_hold() {
    let Some(database) = database("relog") else { return };
    database.sql(
        "CREATE TABLE outbox_messages (id bigint PRIMARY KEY, type text NOT NULL, content bytea, headers json, \
           occurred_on_utc timestamptz); \
         INSERT INTO outbox_messages VALUES (1, 'a', '\\x00ff10', '{\"x\": \"\\u0000\"}', '2026-11-21 10:00+00'), \
           (2, 'b', NULL, NULL, '2026-11-21 10:01+00'), (3, 'c', NULL, NULL, '2026-11-21 10:02+00')",
    );
    let options = ["--source", "wal", "--processed-column", "none", "--error-column", "none"];
    let more = ["--headers-column", "headers"];
    let options = [&options[..], &more].concat();
    database.relay(&[&["install"][..], &options].concat()).ok();
    // One has failed and waits; and of the last nobody can say yet whether the log has brought it.
    database.sql(
        "INSERT INTO millrace.relay_failures (outbox, row_id, key, position, attempts, reason, error, next_attempt_at, \
           stored_row) VALUES ('public.outbox_messages', '3', 'k', 1, 1, 'unroutable', '', 'infinity', '{}'); \
         INSERT INTO millrace.relay_slots (slot, outbox, publication, confirmed_lsn) \
           VALUES ('relog', 'public.outbox_messages', 'p', 'FFFFFFFF/0')",
    );
    database.sql("SELECT pg_create_logical_replication_slot('relog', 'pgoutput')");
    let open = Holding::begin(&database, "SELECT pg_current_xact_id()");
    database.sql("INSERT INTO outbox_messages VALUES (4, 'd', NULL, NULL, '2026-11-21 10:03+00')");
    let replay = ["replay", "--processed", "--since", "2026-11-21 00:00+00", "--yes"];
    let said = std::thread::scope(|scope| {
        let replay = scope.spawn(|| database.relay(&[&replay[..], &options].concat()));
        // A relay that reads on.
        while !replay.is_finished() {
            database.sql("SELECT pg_replication_slot_advance('relog', pg_current_wal_lsn())");
            support::pause();
        }
        replay.join().unwrap().ok()
    });
    drop(open);
    database.sql("SELECT pg_drop_replication_slot('relog')");
    assert!(said.contains("2 rows replayed"), "{said}");
    let waits = "SELECT count(*) FROM millrace.relay_failures WHERE row_id = '3' AND next_attempt_at = 'infinity'";
    assert_eq!(database.sql(waits), "1", "it keeps its place");
    // As the relay reads it: texts as they were written, bytes in hexadecimal.
    let stored = "SELECT stored_row->'content', stored_row->>'headers', stored_row->>'type' \
                  FROM millrace.relay_failures WHERE row_id <> '3' ORDER BY row_id";
    assert_eq!(database.sql(stored), "{\"$bytes\": \"00ff10\"}|{\"x\": \"\\u0000\"}|a\nnull||b");
}

#[test]
fn whoever_purges_dead_rows_is_told_how_many_keys_go_on() {
    let Some(database) = database("keys") else { return };
    database.relay(&["install"]).ok();
    bury(&database, 1, 6, "broken", "9 days");
    bury(&database, 7, 7, "broken", "1 hour");
    // Two keys, and one that has a younger dead row as well.
    database.sql(
        "UPDATE millrace.relay_failures SET key = CASE WHEN row_id < '00000000-0000-0000-0000-000000000003' THEN 'ann' \
           WHEN row_id < '00000000-0000-0000-0000-000000000006' THEN 'bob' ELSE 'cat' END",
    );
    let options = ["--order", "key", "--key-column", "type", "--rows", "2"];
    let purge = ["purge", "--dead", "--older-than", "7d"];
    let said = database.relay(&[&purge[..], &options].concat()).ok();
    assert!(said.contains("6 rows deleted") && said.contains("2 keys that waited"), "{said}");
}

#[test]
fn a_resync_that_is_stopped_leaves_nothing_out_and_tells_how_far_it_is() {
    let Some(stage) = given(Stage::start(Kind::Millrace, support::millrace(), &support::dir()))
    else {
        return;
    };
    let cluster = &stage.postgres;
    cluster.psql("CREATE DATABASE resynced").unwrap();
    let sql = |text: &str| cluster.psql_in("resynced", text).unwrap();
    let url = format!("amqp://guest:guest@{}", stage.broker.setup.address());
    let database = cluster.url_of("resynced");
    let words = |command: &str, more: &[&str]| -> Vec<String> {
        let words = ["relay", command, "--database", &database, "--url", &url, "--source", "wal"];
        words.iter().chain(more).map(|&word| word.to_owned()).collect()
    };
    let log = |name: &str| stage.dir.join(format!("{name}.txt"));
    let start = |command: &str, more: &[&str], name: &str| {
        done(Relay::start(&stage.millrace, &words(command, more), &log(name)))
    };
    let wait = |what: &str, is_so: &dyn Fn() -> bool| {
        let begun = std::time::Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < TIMEOUT, "not within {TIMEOUT:?}: {what}");
            support::pause();
        }
    };
    // A relay worked until now, and its slot is lost. One row is much older than its last commit.
    let mut installed = start("install", &[], "install");
    assert!(done(installed.wait(TIMEOUT)).success(), "{}", installed.last_words());
    sql(
        "INSERT INTO outbox_messages (type, content, occurred_on_utc) VALUES ('nowhere', '{}', now() - interval '3 days'), \
           ('nowhere', '{}', now()); \
         INSERT INTO millrace.relay_slots (slot, outbox, publication, confirmed_lsn, confirmed_at, last_commit_at) \
           VALUES ('millrace_relay', 'public.outbox_messages', 'millrace_relay', '0/1', now(), now())",
    );
    // It waits for a transaction that is open, and is stopped there.
    let open = stage.runtime.block_on(async {
        let client = trials::postgres::connect(&database).await.unwrap();
        client.batch_execute("BEGIN; SELECT pg_current_xact_id()").await.unwrap();
        client
    });
    let mut resync = start("resync", &["--all"], "stopped");
    let said = |name: &str| std::fs::read_to_string(log(name)).unwrap_or_default();
    wait("it makes a slot", &|| said("stopped").contains("making the replication slot"));
    let ended = resync.terminate(std::time::Duration::from_secs(60));
    assert!(ended.is_err(), "what is not done is no success");
    assert!(said("stopped").contains("reads the table again"), "{}", said("stopped"));
    stage.runtime.block_on(open.batch_execute("ROLLBACK")).unwrap();
    // The next relay goes on where the resync was. Both rows find no queue, which is written down.
    let mut relay = start("run", &["--json", "--report-every", "100ms"], "run");
    wait("both rows are published", &|| sql("SELECT count(*) FROM millrace.relay_failures") == "2");
    wait("it is told why", &|| said("run").contains("\"last_failure\":\"row "));
    let told = said("run");
    let told = told.lines().rfind(|line| line.contains("\"last_failure\":\"row ")).unwrap();
    assert!(told.contains("routing key 'nowhere'") && told.contains("declare the queue"), "{told}");
    done(relay.terminate(std::time::Duration::from_secs(60)));
    // A resync that comes to its end says how far it is on the way.
    // The server notices a moment later that nobody reads from the slot.
    wait("its slot is free", &|| {
        sql("SELECT count(*) FROM pg_replication_slots WHERE active") == "0"
    });
    sql("SELECT pg_drop_replication_slot('millrace_relay')");
    let mut resync = start("resync", &["--all", "--report-every", "10ms"], "done");
    assert!(done(resync.wait(TIMEOUT)).success(), "{}", resync.last_words());
    let told = said("done");
    assert!(told.contains("publishing the rows that are in the table"), "{told}");
    assert!(told.contains("0 rows published; start the relay again"), "{told}");
}

#[test]
fn replay_brings_back_exactly_what_is_chosen() {
    let Some(database) = database("chosen") else { return };
    database.relay(&["install"]).ok();
    bury(&database, 1, 1500, "unroutable", "1 hour");
    bury(&database, 1501, 1600, "broken", "1 hour");
    bury(&database, 1601, 1700, "broken", "5 days");
    // Confirmed rows and their like are not touched.
    database.sql("INSERT INTO outbox_messages (type, content, processed_on_utc) SELECT 't', '{}', now() FROM generate_series(1, 50)");

    let dry = database.relay(&["replay", "--reason", "unroutable", "--dry-run"]).ok();
    assert!(dry.contains("1500 dead rows would be published again"), "{dry}");
    let unasked = database.relay(&["replay", "--all-dead"]);
    assert!(unasked.code == 1 && unasked.err.contains("--yes"), "{}", unasked.all());
    let nothing = database.relay(&["replay", "--yes"]);
    assert!(nothing.code == 2 && nothing.err.contains("no rows are chosen"), "{}", nothing.all());
    assert_eq!(pending(&database), BTreeSet::new());

    let id = "00000000-0000-0000-0000-000000000007";
    database.relay(&["replay", "--id", id, "--yes"]).ok();
    assert_eq!(pending(&database), numbers(7..=7));
    database.relay(&["replay", "--error-like", "no queue for 10_", "--yes"]).ok();
    let mut expected = numbers(7..=7);
    expected.extend(numbers(100..=109));
    assert_eq!(pending(&database), expected);
    database.relay(&["replay", "--reason", "broken", "--since", "1d", "--yes"]).ok();
    expected.extend(numbers(1501..=1600));
    assert_eq!(pending(&database), expected);
    // More than one transaction's worth.
    let said = database.relay(&["replay", "--reason", "unroutable", "--until", "1m", "--yes"]).ok();
    assert!(said.contains("1489 rows replayed"), "{said}");
    expected.extend(numbers(1..=1500));
    assert_eq!(pending(&database), expected);
    let left = database.sql("SELECT count(*), min(reason) FROM millrace.relay_failures");
    assert_eq!(
        left, "100|broken",
        "failures of rows that are back are forgotten, the others are kept"
    );
}

#[test]
fn a_stored_row_comes_back_with_every_column_as_it_was() {
    let Some(database) = database("stored") else { return };
    database.sql(
        "CREATE TABLE outbox_messages (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, type text NOT NULL, content bytea, \
           occurred_on_utc timestamptz, amount numeric, tags text[], note text GENERATED ALWAYS AS (type || '!') STORED); \
         INSERT INTO outbox_messages (type, content, occurred_on_utc, amount, tags) \
           VALUES ('a', '\\x00ff10', '2026-11-21 10:00:00.123456+00', 12345678901234567890.5, '{x,\"y, z\"}'), ('b', '', NULL, NULL, NULL)",
    );
    let options =
        ["--on-success", "delete", "--processed-column", "none", "--error-column", "none"];
    database.relay(&[&["install"][..], &options].concat()).ok();
    let before = database.sql("SELECT * FROM outbox_messages ORDER BY id");
    database.sql(
        "WITH gone AS (DELETE FROM outbox_messages o RETURNING o.id::text AS id, to_jsonb(o) AS whole) \
         INSERT INTO millrace.relay_failures (outbox, row_id, key, attempts, reason, error, dead_at, stored_row) \
         SELECT 'public.outbox_messages', id, id, 1, 'broken', 'words', now(), whole FROM gone",
    );
    let said = database.relay(&[&["replay", "--all-dead", "--yes"][..], &options].concat()).ok();
    assert!(said.contains("2 rows replayed"), "{said}");
    assert_eq!(database.sql("SELECT * FROM outbox_messages ORDER BY id"), before);
    assert_eq!(database.sql("SELECT count(*) FROM millrace.relay_failures"), "0");
}

#[test]
fn published_rows_are_replayed_by_their_time_and_archived_ones_return() {
    let Some(database) = database("again") else { return };
    database.relay(&["install", "--on-success", "archive"]).ok();
    database.sql(
        "INSERT INTO outbox_messages (type, content, processed_on_utc) \
           SELECT 't' || n, '{}', '2026-11-01 00:00+00'::timestamptz + n * interval '1 minute' FROM generate_series(1, 100) n; \
         INSERT INTO outbox_messages_archive (id, type, content, occurred_on_utc, processed_on_utc, archived_at) \
           SELECT gen_random_uuid(), 'a' || n, '{}', now(), now(), '2026-11-01 00:00+00'::timestamptz + n * interval '1 minute' \
           FROM generate_series(1, 100) n",
    );
    let hour = [
        "replay",
        "--processed",
        "--since",
        "2026-11-01 00:10+00",
        "--until",
        "2026-11-01 00:20+00",
        "--yes",
    ];
    let back = "SELECT string_agg(type, ',' ORDER BY type) FROM outbox_messages WHERE processed_on_utc IS NULL";
    database.relay(&hour).ok();
    assert_eq!(database.sql(back), "t10,t11,t12,t13,t14,t15,t16,t17,t18,t19");
    database.sql("UPDATE outbox_messages SET processed_on_utc = now()");
    database.relay(&[&hour[..], &["--on-success", "archive"]].concat()).ok();
    assert_eq!(database.sql(back), "a10,a11,a12,a13,a14,a15,a16,a17,a18,a19");
    assert_eq!(database.sql("SELECT count(*) FROM outbox_messages_archive"), "90");
}

#[test]
fn purge_never_deletes_a_row_that_was_not_published_while_writers_write() {
    let Some(database) = database("swept") else { return };
    database.relay(&["install"]).ok();
    database.sql(
        "CREATE TABLE swept (rows bigint); \
         CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS \
           $$ BEGIN INSERT INTO swept SELECT count(*) FROM gone; RETURN NULL; END $$; \
         CREATE TRIGGER note AFTER DELETE ON outbox_messages REFERENCING OLD TABLE AS gone \
           FOR EACH STATEMENT EXECUTE FUNCTION note(); \
         INSERT INTO outbox_messages (type, content, processed_on_utc) SELECT 'old', '{}', now() - interval '8 days' \
           FROM generate_series(1, 20000)",
    );
    bury(&database, 1, 10, "broken", "9 days");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let (database, stop) = (&database, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    // Places of rows that were swept are used again, and rows are marked and unmarked meanwhile.
                    database.sql(&format!(
                        "INSERT INTO outbox_messages (type, content) SELECT 'new{writer}', '{{}}' FROM generate_series(1, 200); \
                         INSERT INTO outbox_messages (type, content, processed_on_utc) \
                           SELECT 'young', '{{}}', now() FROM generate_series(1, 50); \
                         UPDATE outbox_messages SET processed_on_utc = NULL, type = 'undone' WHERE ctid IN ( \
                           SELECT ctid FROM outbox_messages WHERE type = 'old' LIMIT 20 FOR UPDATE SKIP LOCKED)"
                    ));
                }
            });
        }
        for _ in 0..4 {
            let purge =
                database.relay(&["purge", "--older-than", "7d", "--rows", "700", "--pause", "1ms"]);
            assert_eq!(purge.code, 0, "{}", purge.all());
            database.sql("VACUUM outbox_messages");
        }
        stop.store(true, Ordering::Relaxed);
    });
    database.relay(&["purge", "--older-than", "7d"]).ok();
    let count = |what: &str| {
        database
            .sql(&format!("SELECT count(*) FROM outbox_messages WHERE {what}"))
            .parse::<u64>()
            .unwrap()
    };
    let batches = database.sql("SELECT count(*) FROM swept WHERE rows > 0").parse::<u64>().unwrap();
    assert!(batches > 4, "purge ran in {batches} batches");
    assert_eq!(count("type = 'old'"), 0, "what is old and published is gone");
    assert_eq!(count("error = 'words'"), 10, "dead rows stay");
    let undone = count("type = 'undone'");
    let swept: u64 = database.sql("SELECT sum(rows) FROM swept").parse().unwrap();
    assert_eq!(
        swept + undone,
        20_000,
        "every old row was swept once, or made pending again and kept"
    );
    let batches = database.sql("SELECT max(rows) FROM swept").parse::<u64>().unwrap();
    assert!(batches <= 5000, "a transaction deleted {batches} rows");
    assert!(
        count("type LIKE 'new%'") >= 400 && count("type = 'young'") >= 100,
        "the writers wrote"
    );
    assert_eq!(count("processed_on_utc IS NULL"), count("type LIKE 'new%' OR type = 'undone'"));
}

#[test]
fn dead_rows_are_purged_only_when_they_are_asked_for() {
    let Some(database) = database("graves") else { return };
    database.relay(&["install"]).ok();
    bury(&database, 1, 30, "broken", "9 days");
    bury(&database, 31, 40, "broken", "1 hour");
    database.relay(&["purge", "--older-than", "7d"]).ok();
    assert_eq!(database.sql("SELECT count(*) FROM outbox_messages"), "40");
    let said = database.relay(&["purge", "--dead", "--older-than", "7d"]).ok();
    assert!(said.contains("30 rows deleted"), "{said}");
    let left = "SELECT (SELECT count(*) FROM outbox_messages), (SELECT count(*) FROM millrace.relay_failures)";
    assert_eq!(database.sql(left), "10|10");
}

#[test]
fn only_partitions_of_published_old_rows_are_dropped() {
    let Some(database) = database("dropped") else { return };
    database.relay(&["install", "--partitions", "day", "--ahead", "1"]).ok();
    for (day, processed) in [(1, "'2026-01-02'"), (2, "NULL"), (3, "now()"), (4, "'2026-01-05'")] {
        database.sql(&format!(
            "CREATE TABLE old{day} PARTITION OF outbox_messages FOR VALUES FROM ('2026-01-0{day}') TO ('2026-01-0{}'); \
             INSERT INTO outbox_messages (type, content, occurred_on_utc, processed_on_utc) \
               VALUES ('t', '{{}}', '2026-01-0{day} 12:00', '2026-01-05'), ('t', '{{}}', '2026-01-0{day} 13:00', {processed})",
            day + 1
        ));
    }
    database.sql(
        "INSERT INTO millrace.relay_failures (outbox, row_id, attempts, reason, error, dead_at) \
         SELECT 'public.outbox_messages', id::text, 1, 'broken', '', now() FROM old4 LIMIT 1",
    );
    let said = database.relay(&["purge", "--older-than", "7d", "--drop-partitions"]).ok();
    assert!(
        said.contains("old1 dropped")
            && said.contains("1 partitions dropped, 3 old partitions kept"),
        "{said}"
    );
    let left = database.sql(
        "SELECT string_agg(relname, ',' ORDER BY relname) FROM pg_class WHERE relname ~ '^old.$'",
    );
    assert_eq!(left, "old2,old3,old4");
    database.relay(&["purge", "--older-than", "7d"]).ok();
    assert_eq!(
        database.sql("SELECT count(*) FROM outbox_messages"),
        "3",
        "an open row, a young one, a dead one"
    );
}

#[test]
fn status_counts_what_is_there() {
    let Some(database) = database("counted") else { return };
    database.relay(&["install"]).ok();
    database.sql(
        "INSERT INTO outbox_messages (type, content, occurred_on_utc) \
           SELECT 't', '{}', now() - interval '90 seconds' FROM generate_series(1, 1234); \
         INSERT INTO millrace.relay_failures (outbox, row_id, key, attempts, reason, error, next_attempt_at) \
           VALUES ('public.outbox_messages', 'r1', 'ann', 3, 'unroutable', 'no queue', now() + interval '1 minute')",
    );
    bury(&database, 1, 3, "too_large", "1 hour");
    let words = database.relay(&["status"]).ok();
    for line in [
        "1,234 rows, the oldest for 9",
        "1 waiting (unroutable, 3 attempts made, the next in ",
        "3 dead (too_large, after 20 attempts)",
        "`ann` waits for r1 (unroutable)",
        "none is connected",
    ] {
        assert!(words.contains(line), "`{line}` is not in\n{words}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&database.relay(&["status", "--json"]).ok()).unwrap();
    assert_eq!(json["backlog"]["rows"], 1234);
    assert_eq!(json["backlog"]["is_exact"], true);
    assert_eq!(json["failures"][1]["count"], 3);
    let waiting = database.relay(&["replay", "--waiting", "--yes"]).ok();
    assert!(waiting.contains("1 rows replayed"), "{waiting}");
    assert_eq!(
        database.sql(
            "SELECT next_attempt_at <= now() FROM millrace.relay_failures WHERE row_id = 'r1'"
        ),
        "t"
    );
}

#[test]
fn names_with_quotes_are_names_and_no_sql() {
    let Some(database) = database("named") else { return };
    let attack = "x\"; DROP TABLE victim; --";
    let column = |name: &str| format!("{name}'\"); DROP TABLE victim; --");
    database.sql("CREATE TABLE victim (id int); CREATE SCHEMA \"o'dd\"\"\"");
    let table = format!("o'dd\".{attack}");
    let (id, payload, kind, at, done, error) = (
        column("id"),
        column("body"),
        column("type"),
        column("at"),
        column("done"),
        column("error"),
    );
    let order = at.clone();
    let routing = format!("{{{kind}}}");
    let options = [
        "--table",
        &table,
        "--id-column",
        &id,
        "--payload-column",
        &payload,
        "--type-column",
        &kind,
        "--occurred-column",
        &at,
        "--order-by",
        &order,
        "--processed-column",
        &done,
        "--error-column",
        &error,
        "--routing-key",
        &routing,
        "--publication",
        attack,
    ];
    let with = |arguments: &[&'static str]| {
        let all: Vec<&str> = arguments.iter().copied().chain(options.iter().copied()).collect();
        let said = database.relay(&all);
        assert_eq!(said.code, 0, "{arguments:?}: {}", said.all());
        said.out
    };
    with(&["install", "--on-success", "archive"]);
    with(&["install", "--source", "wal"]);
    assert!(with(&["install", "--source", "wal"]).contains("Nothing was missing."));
    assert!(with(&["doctor"]).contains("0 failures"));
    let q = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    let whole = format!("\"o'dd\"\"\".{}", q(attack));
    database.sql(&format!(
        "INSERT INTO {whole} ({}, {}, {}) VALUES ('t', '{{}}', NULL), ('t', '{{}}', now() - interval '9 days')",
        q(&kind), q(&payload), q(&done)
    ));
    assert!(with(&["status"]).contains("1 rows"));
    assert!(
        with(&["replay", "--processed", "--since", "10d", "--yes"]).contains("1 rows replayed")
    );
    database.sql(&format!("UPDATE {whole} SET {} = now() - interval '9 days'", q(&done)));
    assert!(with(&["purge", "--older-than", "7d"]).contains("2 rows deleted"));
    with(&["purge", "--dead", "--older-than", "7d"]);
    assert_eq!(database.sql("SELECT count(*) FROM victim"), "0", "the table is still there");
    // What no identifier can be is refused before it gets near the database.
    let long = "x".repeat(64);
    let refused = database.relay(&["doctor", "--table", &long]);
    assert!(
        refused.code == 2 && refused.err.contains("is not a table's name"),
        "{}",
        refused.all()
    );
}
