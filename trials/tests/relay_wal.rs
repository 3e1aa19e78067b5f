//! `millrace relay run --source wal` and `--source messages`: commits in their order, whoever is killed.

#[path = "support/relay.rs"]
mod support;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use support::{done, stage, valid};
use trials::chaos::broker::Kind;
use trials::relay::harm::Victim;
use trials::relay::process::Relay;
use trials::relay::run::Asked;
use trials::relay::{Plan, Run, Shape};

/// How a relay ends whose slot is lost.
const SLOT_LOST: i32 = 3;
/// More transactions than any machine gets through: they are written until they are told to stop.
const MANY: u32 = 100_000;
/// How long a command may take that ends by itself.
const ENDS: Duration = Duration::from_secs(60);

/// A relay ends because its slot is lost, and says `why`.
#[track_caller]
fn is_refused(run: &Run<'_>, why: &str) {
    // What an earlier one said is not its.
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let log = run.stage.dir.join(format!("refused-{count}.txt"));
    let mut relay = done(Relay::start(&run.stage.millrace, &run.words(), &log));
    let status = done(relay.wait(ENDS));
    assert_eq!(status.code(), Some(SLOT_LOST), "{}", relay.last_words());
    assert!(relay.last_words().contains(why), "{}", relay.last_words());
}

#[track_caller]
fn resync(run: &Run<'_>) {
    let log = run.stage.dir.join("resync.txt");
    let mut resync = done(Relay::start(&run.stage.millrace, &run.words_of("resync"), &log));
    assert!(done(resync.wait(ENDS)).success(), "{}", resync.last_words());
}

#[test]
fn commits_arrive_once_and_in_their_order_and_poison_is_parked_with_its_reason() {
    let Some(mut stage) = stage(Kind::Millrace) else { return };
    let shapes = [
        (Shape::wal(Asked::None), Plan::usual(101).with_poison(4)),
        (Shape::wal(Asked::Key), Plan { poison_apart: false, ..Plan::usual(102).with_poison(2) }),
        (Shape::messages(), Plan::usual(103)),
    ];
    for (shape, plan) in shapes {
        let what = format!("{shape:?}");
        let plan = Plan { transactions: 40, ..plan };
        let report = valid(done(done(Run::start(&mut stage, shape, plan)).finish()));
        assert_eq!((report.duplicates, report.charged), (0, 0), "nobody was killed: {what}");
        assert!(report.committed > 500 && report.rolled_back > 50, "it was a load: {what}");
    }
}

#[test]
fn commits_keep_their_order_when_relay_database_and_broker_are_killed_over_and_over() {
    let Some(mut stage) = stage(Kind::Millrace) else { return };
    for (shape, seed) in [(Shape::wal(Asked::None), 111), (Shape::messages(), 112)] {
        let plan = Plan { transactions: 70, ..Plan::usual(seed) };
        let mut run = done(Run::start(&mut stage, shape, plan));
        for (turn, victim) in Victim::ALL.into_iter().cycle().take(9).enumerate() {
            let enough = run.delivered() + 60 + 7 * turn;
            done(run.until("it goes on", |run| run.delivered() >= enough || run.is_written()));
            done(victim.kill(&mut run));
            done(victim.revive(&mut run));
            // A relay that starts without its broker is told so, and ends.
            done(run.until("it reads the log", |run| run.is_streaming()));
        }
        let report = valid(done(run.finish()));
        assert_eq!(report.charged, 0, "an outage is nobody's fault");
    }
}

/// Seed 1795289939 of `trials relay`: one of three relays was started while PostgreSQL was away, and ended.
#[test]
fn a_relay_that_starts_while_its_database_is_away_waits_for_it() {
    let Some(mut stage) = stage(Kind::Millrace) else { return };
    let plan = Plan { transactions: 20, ..Plan::usual(131) };
    let mut run = done(Run::start(&mut stage, Shape::wal(Asked::Key), plan));
    done(run.relays[0].kill9());
    run.relays.clear();
    done(Victim::Postgres.kill(&mut run));
    done(run.launch_relay());
    let waits = |run: &mut Run<'_>| run.relays[0].last_words().contains("waiting for the database");
    done(run.until("it says what it waits for", waits));
    done(Victim::Postgres.revive(&mut run));
    valid(done(run.finish()));
}

#[test]
fn another_relay_waits_for_the_slot_and_takes_over_and_one_that_is_told_to_end_repeats_little() {
    let Some(mut stage) = stage(Kind::Millrace) else { return };
    let plan = Plan { transactions: 90, ..Plan::usual(121) };
    let mut run = done(Run::start(&mut stage, Shape::wal(Asked::None), plan));
    for moment in [80, 300, 500] {
        done(run.until("it goes on", |run| run.delivered() >= moment || run.is_written()));
        done(run.end_relays());
        done(run.start_relay());
    }
    done(run.until_delivered(600));
    let report = done(run.judge());
    // More rows may follow from the place in the log where the last was written: it is done again.
    assert!(report.duplicates <= 3, "each end repeats a row at most: {report}");
    done(run.start_relay());
    let mut first = run.relays.remove(0);
    done(first.kill9());
    valid(done(run.finish()));
}

#[test]
fn of_a_large_transaction_only_the_rest_comes_after_an_end() {
    let Some(mut stage) = stage(Kind::Millrace) else { return };
    let rows = 4000;
    let plan = Plan {
        writers: 1,
        transactions: 1,
        rows: rows..rows + 1,
        rollback_percent: 0,
        long_percent: 0,
        ..Plan::usual(141)
    };
    let shape = Shape::wal(Asked::None).with(&["--window", "5"]);
    let mut run = done(Run::start(&mut stage, shape, plan));
    for ends in 1..=2 {
        let enough = run.delivered() + 500;
        done(run.until_delivered(enough));
        done(run.end_relays());
        assert!(run.delivered() < rows as usize, "it was in the middle of it at end {ends}");
        done(run.start_relay());
    }
    let report = valid(done(run.finish()));
    assert!(report.duplicates <= 2, "each end repeats a row at most: {report}");
}

/// Where the relay has written down that it is, and where the server remembers its slot.
fn places(run: &Run<'_>) -> (String, String) {
    let slot = run.relay_slot();
    let ask = format!(
        "SELECT k.confirmed_lsn, s.confirmed_flush_lsn FROM millrace.relay_slots k
         JOIN pg_replication_slots s ON s.slot_name = k.slot WHERE k.slot = '{slot}'"
    );
    let places = done(run.sql(&ask));
    let (recorded, slot) = places.split_once('|').unwrap_or_default();
    (recorded.to_owned(), slot.to_owned())
}

/// Transactions that were committed before a place in the log: all of them are in the journal.
fn committed_before(run: &Run<'_>, place: &str) -> usize {
    let ask = "SELECT count(*) FILTER (WHERE get_byte(data, 0) = ascii('I'))
               FROM pg_replication_slots, pg_logical_slot_peek_binary_changes(slot_name, '";
    let of = "', NULL, 'proto_version', '1', 'publication_names', 'journal')
              WHERE slot_name LIKE '%journal' AND database = current_database()";
    if place.is_empty() {
        return 0;
    }
    let count = done(run.sql(&format!("{ask}{place}{of}")));
    count.parse().unwrap_or_else(|_| panic!("it is a number: {count}"))
}

#[test]
fn after_a_crash_of_the_database_nothing_comes_again_that_was_written_down_as_done() {
    let Some(mut stage) = stage(Kind::Millrace) else { return };
    let plan = Plan { transactions: MANY, ..Plan::usual(151) };
    let mut run = done(Run::start(&mut stage, Shape::wal(Asked::None), plan));
    let (mut safe, mut forgotten) = (Vec::new(), 0);
    for _ in 0..3 {
        let enough = safe.last().copied().unwrap_or(0) + 50;
        done(
            run.until("more is written down", |run| {
                committed_before(run, &places(run).0) >= enough
            }),
        );
        // It stands still, so that nothing moves before it was looked at.
        run.relays[0].pause();
        done(Victim::Postgres.kill(&mut run));
        done(Victim::Postgres.revive(&mut run));
        let (recorded, slot) = places(&run);
        let count = committed_before(&run, &recorded);
        forgotten += count - committed_before(&run, &slot);
        safe.push(count);
        run.relays[0].go_on();
    }
    assert!(forgotten > 0, "the server had forgotten something");
    run.stop_writing();
    done(run.until("the writers are done", Run::is_written));
    done(run.until("it is all there", |run| {
        let report = done(run.judge());
        report.is_valid()
    }));
    let history = done(run.history());
    let mut times: BTreeMap<usize, usize> = BTreeMap::new();
    for row in history.deliveries.iter().filter_map(|delivery| delivery.row) {
        *times.entry(row).or_default() += 1;
    }
    for (crash, count) in safe.into_iter().enumerate() {
        let transactions = &history.commits[..count];
        let rows = transactions.iter().flat_map(|at| &history.transactions[*at].rows);
        for row in rows {
            // Each earlier crash may have repeated it, this one and later ones may not.
            let times = times.get(row).copied().unwrap_or(0);
            assert!(times <= 1 + crash, "row {row} came {times} times; it was safe at {crash}");
        }
    }
    valid(done(run.finish()));
}

#[test]
fn what_was_written_down_elsewhere_is_not_believed_and_no_row_is_left_out() {
    let Some(mut stage) = stage(Kind::Millrace) else { return };
    let plan = Plan { transactions: MANY, ..Plan::usual(161) };
    let mut run = done(Run::start(&mut stage, Shape::wal(Asked::None), plan));
    let slot = run.relay_slot();
    let tells = |run: &Run<'_>, what: &str| {
        done(run.sql(&format!("UPDATE millrace.relay_slots SET {what} WHERE slot = '{slot}'")));
    };
    let lies = [
        // As after a recovery to an earlier time: the log is behind what was done.
        "confirmed_lsn = pg_current_wal_lsn() + 1000000000",
        // As on a standby that was promoted: the log went on otherwise.
        "confirmed_lsn = pg_current_wal_flush_lsn(), timeline = timeline + 1",
    ];
    for lie in lies {
        let enough = run.delivered() + 100;
        done(run.until_delivered(enough));
        done(run.end_relays());
        let enough = run.committed() + 50;
        done(run.until("more is written", |run| run.committed() >= enough));
        tells(&run, lie);
        done(run.start_relay());
    }
    let enough = run.delivered() + 50;
    done(run.until_delivered(enough));
    done(run.end_relays());
    tells(&run, "system_id = '1' || system_id");
    is_refused(&run, "");
    tells(&run, "system_id = substr(system_id, 2)");
    run.stop_writing();
    done(run.start_relay());
    valid(done(run.finish()));
}

#[test]
fn a_slot_that_is_lost_is_refused_and_a_resync_brings_what_it_held() {
    let Some(mut stage) = stage(Kind::Millrace) else { return };
    let plan = Plan { transactions: 30, ..Plan::usual(131) };
    let shape = Shape::wal(Asked::None).in_any_order();
    let mut run = done(Run::start(&mut stage, shape, plan));
    done(run.until_delivered(100));
    done(run.end_relays());
    done(run.until("PostgreSQL sees that the reader is gone", |run| run.slot_state() == "f"));
    done(run.sql(&format!("SELECT pg_drop_replication_slot('{}')", run.relay_slot())));
    done(run.until("rows are written that no slot has", Run::is_written));
    is_refused(&run, "resync");
    assert_eq!(run.slot_state(), "", "it made no new one by itself");
    resync(&run);
    done(run.start_relay());
    valid(done(run.finish()));
}

#[test]
fn rows_that_were_committed_while_the_table_was_in_no_publication_are_not_left_out() {
    let Some(mut stage) = stage(Kind::Millrace) else { return };
    let plan = Plan { transactions: 20, ..Plan::usual(181) };
    let shape = Shape::wal(Asked::None).in_any_order();
    let mut run = done(Run::start(&mut stage, shape, plan));
    done(run.until_delivered(50));
    done(run.end_relays());
    done(run.sql("ALTER PUBLICATION millrace_relay DROP TABLE outbox_messages"));
    done(run.until("rows are written that are not published", Run::is_written));
    done(run.sql("ALTER PUBLICATION millrace_relay ADD TABLE outbox_messages"));
    is_refused(&run, "made anew");
    resync(&run);
    done(run.start_relay());
    done(run.until("it reads the log", |run| run.is_streaming()));
    // One that runs sees it, too.
    done(run.sql(
        "BEGIN; ALTER PUBLICATION millrace_relay DROP TABLE outbox_messages;
         ALTER PUBLICATION millrace_relay ADD TABLE outbox_messages; COMMIT",
    ));
    let mut last = run.relays.pop().expect("one runs");
    let status = done(last.wait(ENDS));
    assert_eq!(status.code(), Some(SLOT_LOST), "{}", last.last_words());
    resync(&run);
    done(run.start_relay());
    valid(done(run.finish()));
}

#[test]
fn a_publication_that_was_made_anew_is_refused_once_and_a_resync_mends_it() {
    let Some(mut stage) = stage(Kind::Millrace) else { return };
    let plan = Plan { transactions: 20, ..Plan::usual(171) };
    let shape = Shape::wal(Asked::None).in_any_order();
    let mut run = done(Run::start(&mut stage, shape, plan));
    done(run.until_delivered(50));
    done(run.end_relays());
    // A relay of before did not write down which publication it was.
    done(
        run.sql(
            "DROP PUBLICATION millrace_relay; UPDATE millrace.relay_slots SET published = NULL",
        ),
    );
    done(run.until("rows are written that no publication had", Run::is_written));
    // The second does not even try.
    for _ in 0..2 {
        is_refused(&run, "made anew");
    }
    resync(&run);
    done(run.start_relay());
    done(run.until("it reads the log", |run| run.is_streaming()));
    valid(done(run.finish()));
}

#[test]
fn another_slot_of_the_same_table_is_warned_of() {
    let Some(mut stage) = stage(Kind::Millrace) else { return };
    let plan = Plan { transactions: 3, ..Plan::usual(191) };
    let mut run = done(Run::start(&mut stage, Shape::wal(Asked::None), plan));
    let log = |run: &Run<'_>| run.relays[0].last_words();
    assert!(!log(&run).contains("another slot"), "{}", log(&run));
    done(run.end_relays());
    done(run.sql("SELECT pg_create_logical_replication_slot('another', 'pgoutput')"));
    done(run.sql(
        "INSERT INTO millrace.relay_slots (slot, outbox, publication)
         SELECT 'another', outbox, publication FROM millrace.relay_slots",
    ));
    done(run.start_relay());
    assert!(log(&run).contains("another slot reads the same outbox"), "{}", log(&run));
    valid(done(run.finish()));
}

#[test]
fn a_row_reads_the_same_from_the_table_and_from_the_log() {
    let Some(mut stage) = stage(Kind::Millrace) else { return };
    let mut run = done(Run::prepare(&mut stage, Shape::wal(Asked::Key), Plan::usual(201)));
    let insert = |id: u32| {
        format!("INSERT INTO outbox VALUES ({id}, '10.0.0.1', '\\x00ff', true, 'padded')")
    };
    done(run.sql(&format!(
        "CREATE TABLE outbox (id bigint PRIMARY KEY, aggregatetype inet, aggregateid bytea, type boolean,
         payload char(9)); {}",
        insert(1)
    )));
    let (database, slot) = (run.url(), run.relay_slot());
    let url = format!("amqp://guest:guest@{}/%2f", run.place.broker);
    // No queue takes them, so that they can be looked at.
    let words = ["relay", "run", "--preset", "debezium", "--source", "wal", "--order", "key"];
    let more =
        ["--slot", &slot, "--database", &database, "--url", &url, "--routing-key", "nowhere"];
    let words: Vec<String> = words.iter().chain(&more).map(|&word| word.to_owned()).collect();
    let log = run.stage.dir.join("texts.txt");
    run.relays.push(done(Relay::start(&run.stage.millrace, &words, &log)));
    done(run.until("it reads the log", |run| run.is_streaming()));
    done(run.sql(&insert(2)));
    let failures = "SELECT count(*) FROM millrace.relay_failures";
    done(run.until("both have failed", |run| done(run.sql(failures)) == "2"));
    let texts = "SELECT count(DISTINCT stored_row - 'id'), count(DISTINCT key) FROM millrace.relay_failures";
    assert_eq!(done(run.sql(texts)), "1|1");
    done(run.end_relays());
}
