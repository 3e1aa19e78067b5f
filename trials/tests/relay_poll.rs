//! `millrace relay` and its table: what others do to it, and what a change of settings makes of it.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "runs commands, and counts"
)]

#[path = "support/between.rs"]
mod between;
#[path = "support/relay.rs"]
mod support;

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use support::{done, stage};
use trials::chaos::broker::Kind;
use trials::relay::run::{Asked, Mark};
use trials::relay::{Plan, Run, Shape};

/// Longer than a relay takes to say no.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Adds rows of a key, in order: `types` tells which are wanted.
fn insert(run: &Run<'_>, key: &str, types: &[&str]) {
    for kind in types {
        done(run.sql(&format!(
            "INSERT INTO outbox_messages (id, type, content, occurred_on_utc, aggregate, headers)
             VALUES (gen_random_uuid(), 'order.{kind}', '{{}}', now(), '{key}', '{{}}')"
        )));
    }
}

#[test]
fn what_failed_without_an_order_holds_its_key_back_once_there_is_one() {
    let Some(mut stage) = stage(Kind::Millrace) else { return };
    for (first, then, key) in [
        (Asked::None, Asked::Key, "a"),
        (Asked::Strict, Asked::Key, "a"),
        (Asked::Key, Asked::Strict, ""),
    ] {
        let mut run = done(Run::prepare(&mut stage, Shape::poll(first), Plan::usual(1)));
        insert(&run, "a", &["forgotten"]);
        run.take();
        done(run.start_relay());
        let failed = |run: &Run<'_>, that: &str| {
            done(run.sql(&format!("SELECT count(*) FROM millrace.relay_failures WHERE {that}")))
                == "1"
        };
        let is_there = "SELECT to_regclass('millrace.relay_failures') IS NOT NULL";
        done(run.until("there is a table of failures", |run| done(run.sql(is_there)) == "t"));
        done(run.until("it has failed", |run| failed(run, "true")));
        done(run.end_relays());
        done(run.sql("UPDATE millrace.relay_failures SET next_attempt_at = now(), reason = 'old'"));
        insert(&run, "a", &["paid"]);
        run.shape = Shape::poll(then);
        done(run.start_relay());
        done(run.until("it has failed again", |run| failed(run, "reason = 'unroutable'")));
        assert!(failed(&run, &format!("key = '{key}'")), "it holds its key from now on");
        done(run.end_relays());
    }
}

#[test]
fn a_dead_row_never_takes_another_of_its_id_with_it() {
    let Some(mut stage) = stage(Kind::Millrace) else { return };
    let shape = Shape::poll(Asked::None).on_success(Mark::Delete);
    let mut run = done(Run::prepare(&mut stage, shape, Plan::usual(2)));
    // A row of the parent and one of the child have one id: nothing of PostgreSQL's prevents that.
    done(run.sql("CREATE TABLE child () INHERITS (outbox_messages)"));
    for table in ["outbox_messages", "child"] {
        done(run.sql(&format!(
            "INSERT INTO {table} (id, type, content, occurred_on_utc, headers, seq) OVERRIDING SYSTEM VALUE
             VALUES ('00000000-0000-0000-0000-000000000001', 'order.paid', '\"{table}\"', now(), '[1]', 1)"
        )));
    }
    run.take();
    done(run.launch_relay());
    let mut relay = run.relays.remove(0);
    let ended = done(relay.wait(TIMEOUT));
    assert!(
        !ended.success() && relay.last_words().contains("is not unique"),
        "{}",
        relay.last_words()
    );
    assert_eq!(done(run.sql("SELECT count(*) FROM outbox_messages")), "2");
    assert_eq!(done(run.sql("SELECT count(*) FROM millrace.relay_failures")), "0");
}

#[test]
fn bytes_are_refused_as_what_rows_are_told_apart_by() {
    let Some(mut stage) = stage(Kind::Millrace) else { return };
    let mut run = done(Run::prepare(&mut stage, Shape::poll(Asked::Key), Plan::usual(3)));
    done(run.sql("ALTER TABLE outbox_messages ALTER aggregate TYPE bytea USING aggregate::bytea"));
    done(run.launch_relay());
    let mut relay = run.relays.remove(0);
    let ended = done(relay.wait(TIMEOUT));
    let said = relay.last_words();
    assert!(!ended.success() && said.contains("column `aggregate`"), "{said}");
    let mut doctor = Command::new(support::millrace());
    let said = doctor.args(run.words_of("doctor")).output().unwrap();
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("aggregate is bytea"), "{said}");
}

/// Somebody's session, beside the relay's.
struct Session(tokio_postgres::Client);

impl Session {
    fn open(run: &Run<'_>) -> Self {
        let url = run.url();
        Self(run.stage.runtime.block_on(trials::postgres::connect(&url)).unwrap())
    }

    fn sql(&self, run: &Run<'_>, sql: &str) {
        run.stage.runtime.block_on(self.0.batch_execute(sql)).unwrap();
    }
}

/// A worker waits for a lock of this kind, and has for this long.
fn waits(run: &Run<'_>, event: &str, long: &str) -> bool {
    done(run.sql(&format!(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event = '{event}'
         AND application_name LIKE 'millrace-relay-worker-%' AND now() - query_start > interval '{long}'"
    ))) == "1"
}

fn open(run: &Run<'_>) -> String {
    done(run.sql("SELECT count(*) FROM outbox_messages WHERE processed_on_utc IS NULL"))
}

#[test]
fn what_is_confirmed_is_marked_however_long_somebody_has_locked_the_table() {
    let Some(mut stage) = stage(Kind::Millrace) else { return };
    let shape = Shape::poll(Asked::Key).with(&["--batch-deadline", "300ms", "--workers", "1"]);
    let mut run = done(Run::prepare(&mut stage, shape, Plan::usual(4)));
    run.take();
    insert(&run, "a", &["placed"]);
    done(run.start_relay());
    done(run.until("the first is marked", |run| open(run) == "0"));
    done(run.end_relays());
    // The next waits until the table is locked.
    done(run.sql(
        "INSERT INTO millrace.relay_failures (outbox, row_id, key, attempts, reason, error, next_attempt_at)
         VALUES ('public.outbox_messages', 'x', 'a', 1, 'refused', 'by somebody', now() + interval '1 hour')",
    ));
    insert(&run, "a", &["paid"]);
    done(run.start_relay());
    // As CREATE INDEX does: rows may be read and locked, and not changed.
    let other = Session::open(&run);
    other.sql(&run, "BEGIN; LOCK TABLE outbox_messages IN SHARE MODE");
    done(run.sql("DELETE FROM millrace.relay_failures"));
    done(run.until("it waits for the table, and long", |run| {
        waits(run, "relation", "1 second") || run.deliveries() > 2
    }));
    other.sql(&run, "COMMIT");
    done(run.until("all is marked", |run| open(run) == "0"));
    assert_eq!(run.deliveries(), 2, "each once");
}

#[test]
fn a_table_with_a_rule_is_drained_and_its_dead_rows_leave_the_outbox() {
    let Some(mut stage) = stage(Kind::Millrace) else { return };
    let mut run = done(Run::prepare(&mut stage, Shape::poll(Asked::None), Plan::usual(6)));
    done(run.sql(
        "CREATE TABLE changes (id uuid);
         CREATE RULE note AS ON UPDATE TO outbox_messages DO ALSO INSERT INTO changes VALUES (OLD.id)",
    ));
    insert(&run, "a", &["placed", "paid"]);
    done(run.sql("UPDATE outbox_messages SET headers = '[1]' WHERE type = 'order.paid'"));
    done(run.sql("DELETE FROM changes"));
    run.take();
    done(run.start_relay());
    done(run.until("both have left it", |run| open(run) == "0"));
    let dead = "SELECT reason, dead_at IS NOT NULL FROM millrace.relay_failures";
    assert_eq!(done(run.sql(dead)), "broken|t");
    assert_eq!(run.deliveries(), 1);
}

#[test]
fn the_next_attempt_is_counted_from_when_the_failure_is_written_down() {
    let Some(mut stage) = stage(Kind::Millrace) else { return };
    let shape = Shape::poll(Asked::None).with(&["--retry-min", "600s", "--workers", "1"]);
    let mut run = done(Run::prepare(&mut stage, shape, Plan::usual(5)));
    run.take();
    insert(&run, "a", &["placed"]);
    done(run.start_relay());
    done(run.until("the first is marked", |run| open(run) == "0"));
    // Held where it marks; what has failed is written down after that.
    let gate = Session::open(&run);
    gate.sql(&run, "BEGIN; SELECT pg_advisory_xact_lock(7001)");
    done(run.sql(
        "INSERT INTO outbox_messages (id, type, content, occurred_on_utc, headers)
         SELECT gen_random_uuid(), 'order.' || kind, '{}', now(), '{}' FROM unnest(ARRAY['paid', 'forgotten']) kind",
    ));
    done(run.until("it stands there", |run| waits(run, "advisory", "0")));
    let before = done(run.sql("SELECT clock_timestamp()"));
    gate.sql(&run, "COMMIT");
    let failed = format!(
        "SELECT last_failed_at > '{before}', next_attempt_at - last_failed_at >= interval '300 s'
         FROM millrace.relay_failures"
    );
    done(run.until("it has failed", |run| !done(run.sql(&failed)).is_empty()));
    assert_eq!(done(run.sql(&failed)), "t|t", "however long its batch has waited");
}

#[test]
fn a_row_that_another_relay_has_failed_with_leaves_no_failure_once_it_is_confirmed() {
    let Some(mut stage) = stage(Kind::Millrace) else { return };
    let shape = Shape::poll(Asked::None).with(&["--poll-max", "10ms"]);
    let mut run = done(Run::prepare(&mut stage, shape, Plan::usual(6)));
    run.take();
    done(run.start_relay());
    insert(&run, "a", &["paid"]);
    done(run.until("the first is marked", |run| open(run) == "0"));
    // Its time has come already when the row is seen.
    done(run.sql(
        "WITH row AS (INSERT INTO outbox_messages (id, type, content, occurred_on_utc, headers)
             VALUES (gen_random_uuid(), 'order.paid', '{}', now(), '{}') RETURNING id)
         INSERT INTO millrace.relay_failures (outbox, row_id, attempts, reason, error, next_attempt_at)
         SELECT 'public.outbox_messages', id, 1, 'refused', 'by somebody', now() FROM row",
    ));
    done(run.until("it is marked", |run| open(run) == "0"));
    assert_eq!(done(run.sql("SELECT count(*) FROM millrace.relay_failures")), "0");
}

fn replay(run: &Run<'_>, words: &[&str]) -> String {
    let mut command = Command::new(support::millrace());
    let said = command.args(run.words_of("replay")).args(words).arg("--yes").output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    String::from_utf8_lossy(&said.stdout).into_owned()
}

#[test]
fn a_null_of_jsonb_outlives_death() {
    let Some(mut stage) = stage(Kind::Millrace) else { return };
    let shape = Shape::poll(Asked::None).on_success(Mark::Delete);
    let mut run = done(Run::prepare(&mut stage, shape, Plan::usual(7)));
    // The column may not be NULL, and is not.
    done(run.sql(
        "INSERT INTO outbox_messages (id, type, content, occurred_on_utc, headers)
         VALUES (gen_random_uuid(), 'order.paid', 'null', now(), '[1]')",
    ));
    run.take();
    done(run.start_relay());
    let rows = "SELECT count(*) FROM outbox_messages";
    done(run.until("it is dead", |run| done(run.sql(rows)) == "0"));
    done(run.end_relays());
    replay(&run, &["--all-dead"]);
    assert_eq!(done(run.sql("SELECT content, headers FROM outbox_messages")), "null|[1]");
}

#[test]
fn a_dead_row_that_could_not_leave_a_table_without_marks_is_brought_back() {
    let Some(mut stage) = stage(Kind::Millrace) else { return };
    let shape = Shape::poll(Asked::None).on_success(Mark::Delete).with(&[
        "--processed-column",
        "none",
        "--error-column",
        "none",
    ]);
    let mut run = done(Run::prepare(&mut stage, shape, Plan::usual(8)));
    done(run.sql(
        "INSERT INTO outbox_messages (id, type, content, occurred_on_utc, headers)
         VALUES (gen_random_uuid(), 'order.paid', '{}', now(), '[1]');
         CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
         CREATE TRIGGER keep BEFORE DELETE ON outbox_messages FOR EACH ROW EXECUTE FUNCTION keep()",
    ));
    run.take();
    done(run.start_relay());
    let dead = "SELECT count(*) FROM millrace.relay_failures WHERE dead_at IS NOT NULL";
    let is_there = "SELECT to_regclass('millrace.relay_failures') IS NOT NULL";
    done(run.until("there is a table of failures", |run| done(run.sql(is_there)) == "t"));
    done(run.until("it is dead", |run| done(run.sql(dead)) == "1"));
    done(run.end_relays());
    done(
        run.sql("DROP TRIGGER keep ON outbox_messages; UPDATE outbox_messages SET headers = '{}'"),
    );
    replay(&run, &["--all-dead"]);
    assert_eq!(done(run.sql("SELECT count(*) FROM millrace.relay_failures")), "0");
    done(run.start_relay());
    done(run.until("it is published", |run| {
        done(run.sql("SELECT count(*) FROM outbox_messages")) == "0"
    }));
    assert_eq!(run.deliveries(), 1);
}

#[test]
fn a_confirm_that_comes_while_others_are_published_counts_for_the_row_that_waits_for_it() {
    let Some(mut stage) = stage(Kind::Millrace) else { return };
    let shape = Shape::poll(Asked::None).with(&["--workers", "1"]);
    let mut run = done(Run::prepare(&mut stage, shape, Plan::usual(9)));
    let silence = Arc::new(between::Silence::default());
    silence.set("a slow one");
    run.place.broker = between::silencer(run.place.broker, &silence);
    done(run.sql(
        "INSERT INTO outbox_messages (id, type, content, occurred_on_utc, headers)
         SELECT gen_random_uuid(), 'order.paid', to_jsonb(word), now(), '{}' FROM unnest(ARRAY['a slow one', '']) word",
    ));
    run.take();
    done(run.start_relay());
    let parked = "SELECT count(*) FROM millrace.relay_failures WHERE reason = 'unanswered'";
    done(run.until("one is marked", |run| open(run) == "1"));
    done(run.until("the other waits", |run| done(run.sql(parked)) == "1"));
    assert!(silence.kept.load(Ordering::Relaxed) > 0, "the broker has it");
    silence.set("");
    insert(&run, "a", &["placed", "paid"]);
    done(run.until("all are marked", |run| open(run) == "0"));
    // On a slow machine it may have given up the connection meanwhile, which is right as well.
    let is_given_up = run.relays[0].last_words().contains("without an answer");
    assert!(is_given_up || run.deliveries() == 4, "{} for 4 rows", run.deliveries());
}

#[test]
fn published_rows_come_back_in_their_order_however_many_they_are() {
    let Some(mut stage) = stage(Kind::Millrace) else { return };
    let run = done(Run::prepare(&mut stage, Shape::poll(Asked::Key), Plan::usual(10)));
    done(run.sql(
        "INSERT INTO outbox_messages (id, type, content, occurred_on_utc, processed_on_utc, headers)
         SELECT gen_random_uuid(), 'order.paid', '{}', now(), now(), '{}' FROM generate_series(1, 2500)",
    ));
    let mut install = Command::new(support::millrace());
    assert!(install.args(run.words_of("install")).output().unwrap().status.success());
    replay(&run, &["--processed", "--since", "1h"]);
    assert_eq!(open(&run), "2500");
    let overtaken = "SELECT count(*) FROM (SELECT xmin::text::bigint AS own,
        lag(xmin::text::bigint) OVER (ORDER BY seq) AS before FROM outbox_messages) back WHERE own < before";
    assert_eq!(
        done(run.sql(overtaken)),
        "0",
        "a transaction brings back what follows the one before"
    );
}
