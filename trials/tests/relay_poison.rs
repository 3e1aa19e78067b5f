//! `millrace relay` and rows that something refuses: whatever it is, the others pass, and the guilty are found.
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

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use support::{done, stage, valid};
use trials::chaos::broker::Kind;
use trials::relay::history::{Id, Kind as RowKind};
use trials::relay::process::Relay;
use trials::relay::run::{Asked, Mark};
use trials::relay::{Plan, Run, Shape};

/// Attempts that follow one another at once.
const SOON: [&str; 4] = ["--retry-min", "100ms", "--retry-max", "500ms"];

/// How often each row was delivered.
fn deliveries(run: &mut Run<'_>) -> BTreeMap<Id, usize> {
    let mut counts = BTreeMap::new();
    for delivery in done(run.history()).deliveries {
        *counts.entry(delivery.id.expect("every message has an id")).or_default() += 1;
    }
    counts
}

fn ids(text: &str) -> Vec<Id> {
    text.lines().map(|line| Id::read(line).expect("it is one")).collect()
}

/// Some rows among the others, whose marks a trigger refuses.
const GUILTY: &str = "
    CREATE TABLE guilty AS SELECT id FROM outbox_messages WHERE seq % 37 = 5;
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF NOT EXISTS (SELECT FROM guilty g WHERE g.id = OLD.id) THEN
            RETURN coalesce(NEW, OLD);
        ELSIF TG_ARGV[0] = 'silently' THEN
            RETURN NULL;
        END IF;
        RAISE EXCEPTION 'somebody wants to keep row %', OLD.id;
    END $$;";

#[test]
fn a_row_that_the_database_refuses_to_mark_is_found_and_charged_and_its_neighbours_pass_once() {
    let Some(mut stage) = stage(Kind::Millrace) else { return };
    let before = |how: &str| {
        format!(
            "CREATE TRIGGER refuse BEFORE UPDATE OR DELETE ON outbox_messages FOR EACH ROW EXECUTE FUNCTION refuse({how})"
        )
    };
    let at_commit = "CREATE CONSTRAINT TRIGGER refuse AFTER UPDATE OR DELETE ON outbox_messages
                     DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse('at the commit')";
    let cases = [
        (Asked::None, Mark::Update, before("'aloud'"), "somebody wants to keep row"),
        (Asked::None, Mark::Archive, before("'silently'"), "keeps it as it is"),
        (Asked::None, Mark::Delete, at_commit.to_owned(), "somebody wants to keep row"),
        (Asked::Key, Mark::Update, before("'aloud'"), "somebody wants to keep row"),
    ];
    for (seed, (order, mark, trigger, words)) in (101..).zip(cases) {
        // They live until somebody mends it, however long that takes.
        let shape =
            Shape::poll(order).on_success(mark).with(&SOON).with(&["--max-attempts", "1000"]);
        // A key each, so that nothing waits behind a row that is refused.
        let plan = Plan { keys: 10_000, transactions: 20, ..Plan::usual(seed) };
        let mut run = done(Run::prepare(&mut stage, shape, plan));
        run.write();
        done(run.until("all is written", Run::is_written));
        done(run.sql(&format!("{GUILTY}{trigger}")));
        let guilty = ids(&done(run.sql("SELECT id FROM guilty")));
        assert!(guilty.len() > 2, "there are some");
        run.take();
        done(run.start_relay());
        let rest = "SELECT count(*) FROM outbox_messages
                    WHERE processed_on_utc IS NULL AND id NOT IN (SELECT id FROM guilty)";
        done(run.until("the others are marked", |run| done(run.sql(rest)) == "0"));
        let charged = format!(
            "SELECT count(*) FROM millrace.relay_failures
             WHERE reason = 'unmarked' AND attempts > 0 AND error LIKE '%{words}%'"
        );
        let all = guilty.len().to_string();
        done(run.until("all of them are charged", |run| done(run.sql(&charged)) == all));
        assert_eq!(done(run.sql("SELECT count(*) FROM millrace.relay_failures")), all);
        for (id, count) in deliveries(&mut run) {
            assert!(count == 1 || guilty.contains(&id), "{id} is innocent, and came {count} times");
        }
        // Whoever mends it need do no more.
        done(run.sql("DROP TRIGGER refuse ON outbox_messages"));
        valid(done(run.finish()));
    }
}

#[test]
fn a_row_that_may_not_be_marked_dies_in_its_place_and_is_not_published_any_more() {
    let Some(mut stage) = stage(Kind::Millrace) else { return };
    for (seed, order) in [(111, "none"), (112, "key")] {
        let asked = if order == "key" { Asked::Key } else { Asked::None };
        let shape =
            Shape::poll(asked).with(&SOON).with(&["--max-attempts", "2", "--on-dead", "skip"]);
        let plan = Plan { transactions: 15, ..Plan::usual(seed) };
        let mut run = done(Run::prepare(&mut stage, shape, plan));
        run.write();
        done(run.until("all is written", Run::is_written));
        let trigger = "CREATE TRIGGER refuse BEFORE UPDATE OR DELETE ON outbox_messages
                       FOR EACH ROW EXECUTE FUNCTION refuse('aloud')";
        done(run.sql(&format!("{GUILTY}{trigger}")));
        run.take();
        done(run.start_relay());
        let rest = "SELECT count(*) FROM outbox_messages
                    WHERE processed_on_utc IS NULL AND id NOT IN (SELECT id FROM guilty)";
        let dead = "SELECT count(*) = (SELECT count(*) FROM guilty) FROM millrace.relay_failures
                    WHERE reason = 'unmarked' AND attempts = 2 AND dead_at IS NOT NULL";
        done(run.until("the others are marked", |run| done(run.sql(rest)) == "0"));
        done(run.until("they are dead", |run| done(run.sql(dead)) == "t"));
        // Others come and pass.
        run.plan.seed += 10;
        run.write();
        done(run.until("the rest is written", Run::is_written));
        done(run.until("the others are marked", |run| done(run.sql(rest)) == "0"));
        let counts = deliveries(&mut run);
        for id in ids(&done(run.sql("SELECT id FROM guilty"))) {
            assert_eq!(counts.get(&id), Some(&2), "{order}: as often as it was tried");
        }
    }
}

/// Rows are read past somebody who stands at the first of them while the table says so. Only workers are held up, and
/// only as a role for which policies count.
const TURNSTILE: &str = "
    CREATE TABLE closed AS SELECT min(seq) AS at FROM outbox_messages;
    CREATE FUNCTION pass(seq bigint) RETURNS boolean LANGUAGE plpgsql AS $$
    BEGIN
        WHILE current_setting('application_name') LIKE 'millrace-relay-worker-%'
            AND EXISTS (SELECT FROM closed c WHERE c.at = pass.seq)
        LOOP
            PERFORM pg_sleep(0.01);
        END LOOP;
        RETURN true;
    END $$;
    CREATE POLICY turnstile ON outbox_messages USING (pass(seq));
    ALTER TABLE outbox_messages ENABLE ROW LEVEL SECURITY;
    CREATE ROLE drainer LOGIN;
    GRANT ALL ON ALL TABLES IN SCHEMA public TO drainer;";

#[test]
fn a_row_that_somebody_else_parks_while_a_worker_looks_for_rows_is_left_alone() {
    let Some(mut stage) = stage(Kind::Millrace) else { return };
    let plan = Plan { transactions: 10, ..Plan::usual(161) };
    let shape = Shape::poll(Asked::None).with(&["--workers", "1"]);
    let mut run = done(Run::prepare(&mut stage, shape, plan));
    run.write();
    done(run.until("all is written", Run::is_written));
    done(run.sql(TURNSTILE));
    done(run.sql(&format!("GRANT CREATE ON DATABASE {} TO drainer", run.database)));
    run.take();
    let words: Vec<String> =
        run.words().iter().map(|word| word.replace("postgres@", "drainer@")).collect();
    let log = run.stage.dir.join("relay-turnstile.txt");
    run.relays.push(done(Relay::start(&run.stage.millrace, &words, &log)));
    let looks = "SELECT count(*) FROM pg_stat_activity
                 WHERE wait_event = 'PgSleep' AND usename = 'drainer'";
    done(run.until("it looks for rows", |run| done(run.sql(looks)) == "1"));
    // As another worker does whose message for the last row was refused.
    let parked = done(run.sql(
        "INSERT INTO millrace.relay_failures (outbox, row_id, attempts, reason, error, next_attempt_at)
         SELECT 'public.outbox_messages', id, 1, 'refused', 'by somebody', now() + interval '1 hour'
         FROM outbox_messages ORDER BY seq DESC LIMIT 1 RETURNING row_id",
    ));
    done(run.sql("DELETE FROM closed"));
    let open = "SELECT id FROM outbox_messages WHERE processed_on_utc IS NULL";
    done(run.until("the others are marked", |run| done(run.sql(open)).lines().count() <= 1));
    assert_eq!(done(run.sql(open)), parked, "it waits");
    assert!(!deliveries(&mut run).contains_key(&ids(&parked)[0]), "it is not published either");
}

/// Whoever writes failures down stands still before its commit while the table says so.
const GATE: &str = "
    CREATE TABLE closed AS SELECT 1 AS at;
    CREATE FUNCTION pass() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        WHILE EXISTS (SELECT FROM closed) LOOP
            PERFORM pg_sleep(0.01);
        END LOOP;
        RETURN NULL;
    END $$;
    CREATE CONSTRAINT TRIGGER gate AFTER INSERT ON millrace.relay_failures
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION pass();";

#[test]
fn rows_behind_a_dead_one_wait_though_failures_are_counted_while_its_own_is_written() {
    let Some(mut stage) = stage(Kind::Millrace) else { return };
    let plan = Plan { keys: 5, transactions: 10, ..Plan::usual(171) };
    let plan = Plan { poison: vec![RowKind::TooLarge], poison_percent: 10, ..plan };
    let plan = Plan { poison_apart: false, ..plan };
    let shape = Shape::poll(Asked::Key).with(&["--workers", "1"]);
    let mut run = done(Run::prepare(&mut stage, shape, plan));
    run.take();
    done(run.start_relay());
    let is_ready = "SELECT to_regclass('millrace.relay_failures') IS NOT NULL";
    done(run.until("there is a table of failures", |run| done(run.sql(is_ready)) == "t"));
    done(run.sql(GATE));
    run.write();
    let stands = "SELECT count(*) FROM pg_stat_activity
                  WHERE wait_event = 'PgSleep' AND application_name LIKE 'millrace-relay-worker-%'";
    done(run.until("it writes failures down", |run| done(run.sql(stands)) == "1"));
    let asked = "SELECT query_start FROM pg_stat_activity WHERE state = 'idle'
                 AND application_name = 'millrace-relay-monitor' AND query LIKE '%relay_failures%'";
    let mut times = BTreeSet::new();
    done(run.until("they are counted meanwhile", |run| {
        times.insert(done(run.sql(asked)));
        times.len() > 3
    }));
    done(run.sql("DELETE FROM closed"));
    let report = valid(done(run.finish()));
    assert!(report.parked > 0 && report.due < report.committed, "some were dead, others behind");
}

#[test]
fn a_dead_row_with_json_that_jsonb_cannot_hold_is_kept_and_comes_back_as_it_was() {
    let Some(mut stage) = stage(Kind::Millrace) else { return };
    let shape = Shape::poll(Asked::None).on_success(Mark::Delete);
    let mut run = done(Run::prepare(&mut stage, shape, Plan::usual(121)));
    done(run.sql("ALTER TABLE outbox_messages ALTER content TYPE json"));
    done(run.sql(
        r#"INSERT INTO outbox_messages (id, type, content, occurred_on_utc, headers)
           SELECT gen_random_uuid(), 'order.paid', '{"zero": "\u0000",  "n": 1.10}', now(),
                  CASE WHEN n = 50 THEN '"no object"' ELSE '{}' END::jsonb
           FROM generate_series(1, 100) n"#,
    ));
    run.take();
    done(run.start_relay());
    done(run.until("the table is empty", |run| {
        done(run.sql("SELECT count(*) FROM outbox_messages")) == "0"
    }));
    let kept =
        "SELECT reason, dead_at IS NOT NULL, stored_row IS NOT NULL FROM millrace.relay_failures";
    assert_eq!(done(run.sql(kept)), "broken|t|t");
    assert_eq!(run.deliveries(), 99);
    done(run.end_relays());
    let mut replay = Command::new(support::millrace());
    replay.args(run.words_of("replay")).args(["--all-dead", "--yes"]);
    let said = replay.output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let back = done(run.sql("SELECT content::text, headers FROM outbox_messages"));
    assert_eq!(back, r#"{"zero": "\u0000",  "n": 1.10}|"no object""#);
}

#[test]
fn a_row_at_which_the_connection_is_dropped_is_found_and_charged_and_stops_nobody() {
    let Some(mut stage) = stage(Kind::Millrace) else { return };
    let fatal = Arc::new(between::Fatal::default());
    let shape = Shape::poll(Asked::None).with(&["--workers", "2"]);
    let plan = Plan { transactions: 12, ..Plan::usual(131) };
    let mut run = done(Run::prepare(&mut stage, shape, plan));
    done(run.sql(
        "INSERT INTO outbox_messages (id, type, content, occurred_on_utc, headers)
         VALUES ('00000000-0000-0000-0000-000000000000', 'order.paid', '\"a deadly word\"', now(), '{}')",
    ));
    run.take();
    run.write();
    done(run.until("all is written", Run::is_written));
    fatal.set("a deadly word");
    run.place.broker = between::dropper(run.place.broker, &fatal);
    done(run.start_relay());
    let charged = "SELECT count(*) FROM millrace.relay_failures
                   WHERE row_id = '00000000-0000-0000-0000-000000000000' AND reason = 'refused' AND attempts > 0
                     AND dead_at IS NULL AND error LIKE '%connection to the broker is lost%'";
    let rest = "SELECT count(*) FROM outbox_messages WHERE processed_on_utc IS NULL AND aggregate IS NOT NULL";
    done(run.until("the others are delivered", |run| done(run.sql(rest)) == "0"));
    // Others must come for it to be told from an outage.
    run.plan.seed += 1;
    run.plan.transactions = 100_000;
    run.plan.writers = 2;
    run.write();
    done(run.until("it is charged", |run| done(run.sql(charged)) == "1"));
    run.stop_writing();
    assert_eq!(done(run.sql("SELECT count(*) FROM millrace.relay_failures")), "1");
    let forget = "DELETE FROM %s WHERE %c = '00000000-0000-0000-0000-000000000000'";
    done(run.end_relays());
    for (table, column) in [("outbox_messages", "id"), ("millrace.relay_failures", "row_id")] {
        done(run.sql(&forget.replace("%s", table).replace("%c", column)));
    }
    done(run.start_relay());
    let report = valid(done(run.finish()));
    assert_eq!(report.charged, 0);
}

#[test]
fn a_row_of_the_log_at_which_the_connection_is_dropped_is_found_and_charged_and_stops_nobody() {
    let Some(mut stage) = stage(Kind::Millrace) else { return };
    let fatal = Arc::new(between::Fatal::default());
    let shape = Shape::wal(Asked::None).with(&["--window", "20"]).in_any_order();
    let plan = Plan { transactions: 100_000, writers: 2, ..Plan::usual(132) };
    let mut run = done(Run::prepare(&mut stage, shape, plan));
    fatal.set("a deadly word");
    run.place.broker = between::dropper(run.place.broker, &fatal);
    run.take();
    done(run.start_relay());
    done(run.until("it reads the log", |run| run.is_streaming()));
    done(run.sql(
        "INSERT INTO outbox_messages (id, type, content, occurred_on_utc, headers)
         VALUES ('00000000-0000-0000-0000-000000000000', 'order.paid', '\"a deadly word\"', now(), '{}')",
    ));
    // Others pass between its attempts.
    run.write();
    let charged = "SELECT count(*) FROM millrace.relay_failures
                   WHERE row_id = '00000000-0000-0000-0000-000000000000' AND reason = 'refused' AND attempts > 0
                     AND dead_at IS NULL AND error LIKE '%connection to the broker is lost%'";
    done(run.until("it is charged", |run| done(run.sql(charged)) == "1"));
    run.stop_writing();
    let failures = "SELECT count(*) FROM millrace.relay_failures";
    assert_eq!(done(run.sql(failures)), "1");
    fatal.set("");
    done(run.until("it is delivered", |run| done(run.sql(failures)) == "0"));
    done(run.end_relays());
}

#[test]
fn a_broker_that_takes_connections_and_drops_them_at_every_message_charges_nobody() {
    let Some(mut stage) = stage(Kind::Millrace) else { return };
    let fatal = Arc::new(between::Fatal::default());
    let shape = Shape::poll(Asked::Key).with(&["--workers", "2"]);
    let plan = Plan { transactions: 12, ..Plan::usual(141) };
    let mut run = done(Run::prepare(&mut stage, shape, plan));
    run.take();
    run.write();
    done(run.until("all is written", Run::is_written));
    fatal.set("order.");
    run.place.broker = between::dropper(run.place.broker, &fatal);
    done(run.start_relay());
    done(run.until("many were dropped", |_| fatal.drops.load(Ordering::Relaxed) >= 16));
    fatal.set("");
    let report = valid(done(run.finish()));
    assert_eq!((report.charged, report.parked), (0, 0), "an outage is nobody's fault");
}

#[test]
fn a_pooler_that_shares_sessions_is_refused_in_words() {
    let Some(mut stage) = stage(Kind::Millrace) else { return };
    let run = done(Run::prepare(&mut stage, Shape::poll(Asked::Key), Plan::usual(151)));
    let server = format!("127.0.0.1:{}", run.stage.postgres.port());
    let pooler = between::pooler(server.parse().unwrap());
    let mut words = run.words();
    for word in &mut words {
        *word = word.replace(&server, &pooler.to_string());
    }
    let said = Command::new(support::millrace()).args(words).output().unwrap();
    let text = String::from_utf8_lossy(&said.stderr);
    assert!(!said.status.success(), "{text}");
    assert!(text.contains("pool_mode = session"), "{text}");
}

#[test]
fn a_table_without_an_index_is_drained_and_the_operator_is_told_once() {
    let Some(mut stage) = stage(Kind::Millrace) else { return };
    let told = "no index finds pending rows in order";
    let mut run = done(Run::start(&mut stage, Shape::poll(Asked::None), Plan::usual(161)));
    done(run.until_delivered(50));
    assert!(!run.relays[0].last_words().contains(told), "there is one");
    done(run.end_relays());
    done(run.sql("DROP INDEX outbox_messages_open"));
    done(run.start_relay());
    let said = |run: &mut Run<'_>| run.relays[0].last_words().matches(told).count();
    done(run.until("it is told", |run| said(run) > 0));
    valid(done(run.finish()));
}

#[test]
fn a_table_without_an_order_is_drained_from_one_heap_and_from_many() {
    let Some(mut stage) = stage(Kind::Millrace) else { return };
    let heap = "CREATE TABLE outbox (id uuid NOT NULL, aggregatetype text, aggregateid text, type text, payload jsonb)";
    let parts = "CREATE TABLE outbox_1 PARTITION OF outbox FOR VALUES WITH (MODULUS 2, REMAINDER 0);
                 CREATE TABLE outbox_2 PARTITION OF outbox FOR VALUES WITH (MODULUS 2, REMAINDER 1)";
    for table in [heap.to_owned(), format!("{heap} PARTITION BY HASH (id); {parts}")] {
        let mut run = done(Run::prepare(&mut stage, Shape::poll(Asked::None), Plan::usual(171)));
        let insert = "INSERT INTO outbox SELECT gen_random_uuid(), 'order', n::text, 'placed', '{}'
                      FROM generate_series(1, 3000) n";
        done(run.sql(&format!("{table}; {insert}")));
        run.take();
        let database = run.url();
        let url = format!("amqp://guest:guest@{}/%2f", run.place.broker);
        let words = [
            "relay",
            "run",
            "--preset",
            "debezium",
            "--batch",
            "100",
            "--routing-key",
            "order.placed",
        ];
        let more = ["--database", &database, "--url", &url, "--exchange", &run.place.exchange];
        let words: Vec<String> = words.iter().chain(&more).map(|&word| word.to_owned()).collect();
        let log = run.stage.dir.join("debezium.txt");
        run.relays.push(done(Relay::start(&run.stage.millrace, &words, &log)));
        done(run.until("it is half done", |run| run.deliveries() > 1500));
        // They take the places of rows that are gone, behind the relay.
        done(run.sql("VACUUM outbox"));
        done(run.sql(insert));
        done(run.until("all are delivered", |run| run.deliveries() >= 6000));
        done(run.until("none is left", |run| done(run.sql("SELECT count(*) FROM outbox")) == "0"));
        let counts = deliveries(&mut run);
        assert!(counts.len() == 6000 && counts.values().all(|&count| count == 1), "each once");
        done(run.end_relays());
    }
}
