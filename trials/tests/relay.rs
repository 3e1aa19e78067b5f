//! `millrace relay` between a real PostgreSQL and a real Millrace: what was committed arrives, in order,
//! whoever is killed.
//!
//! Longer, by chance, and on RabbitMQ: `cargo xtask chaos relay`.

#[path = "support/relay.rs"]
mod support;

use support::{done, stage, valid};
use trials::chaos::broker::Kind;
use trials::relay::harm::Victim;
use trials::relay::hold::{Held, Step};
use trials::relay::run::{Asked, Mark};
use trials::relay::{Plan, Run, Shape, soak};

/// A batch that is given back when the broker is silent for this long; the rest is as usual.
const IMPATIENT: [&str; 2] = ["--batch-deadline", "500ms"];

/// What is strict has one message under way at a time: fewer rows do.
fn one_key(seed: u64) -> Plan {
    Plan { keys: 1, transactions: 12, ..Plan::usual(seed) }
}

#[test]
fn every_committed_row_arrives_once_and_in_order_and_poison_is_parked_with_its_reason() {
    let Some(mut stage) = stage(Kind::Millrace) else { return };
    let shapes = [
        (Shape::poll(Asked::None), Plan::usual(1).with_poison(4)),
        (Shape::poll(Asked::Key).on_success(Mark::Delete), Plan::usual(2).with_poison(4)),
        // Poison among the others of its key: those behind it wait.
        (Shape::poll(Asked::Key), Plan { poison_apart: false, ..Plan::usual(3).with_poison(2) }),
        (Shape::poll(Asked::Strict).on_success(Mark::Archive), one_key(4)),
    ];
    for (shape, plan) in shapes {
        let what = format!("{shape:?}");
        let run = done(Run::start(&mut stage, shape, plan));
        let report = valid(done(run.finish()));
        assert_eq!(report.duplicates, 0, "nobody was killed: {what}");
        assert_eq!(report.charged, 0, "{what}");
        assert!(report.committed > 200 && report.rolled_back > 10, "it was a load: {what}");
    }
}

#[test]
fn nothing_is_lost_nor_reordered_when_relay_database_and_broker_are_killed_over_and_over() {
    let Some(mut stage) = stage(Kind::Millrace) else { return };
    let plan = Plan { transactions: 110, ..Plan::usual(11) };
    let mut run = done(Run::start(&mut stage, Shape::poll(Asked::Key), plan));
    // Moments differ by few rows, so that they fall into all steps of a batch.
    for (turn, victim) in Victim::ALL.into_iter().cycle().take(15).enumerate() {
        let enough = run.delivered() + 60 + 7 * turn;
        done(run.until("it goes on", |run| run.delivered() >= enough || run.is_written()));
        done(victim.kill(&mut run));
        done(victim.revive(&mut run));
    }
    let report = valid(done(run.finish()));
    assert_eq!(report.charged, 0, "an outage is nobody's fault");
}

#[test]
fn pipelined_rows_of_one_key_keep_their_order_whoever_is_killed() {
    let Some(mut stage) = stage(Kind::Millrace) else { return };
    for shape in [Shape::poll(Asked::Key), Shape::wal(Asked::Key)] {
        let shape = shape.with(&["--order-pipeline", "repeat"]);
        let plan = Plan { keys: 1, transactions: 60, ..Plan::usual(17) };
        let mut run = done(Run::start(&mut stage, shape, plan));
        for (turn, victim) in Victim::ALL.into_iter().cycle().take(6).enumerate() {
            let enough = run.delivered() + 60 + 7 * turn;
            done(run.until("it goes on", |run| run.delivered() >= enough || run.is_written()));
            done(victim.kill(&mut run));
            done(victim.revive(&mut run));
        }
        let report = valid(done(run.finish()));
        assert_eq!(report.charged, 0, "an outage is nobody's fault");
    }
}

#[test]
fn nothing_is_lost_when_anybody_is_killed_while_the_relay_is_at_any_step() {
    let Some(mut stage) = stage(Kind::Millrace) else { return };
    for (order, seed) in [(Asked::Key, 21), (Asked::None, 22)] {
        // More than any machine gets through: they write until every step has had its kills.
        let plan = Plan { transactions: 100_000, writers: 2, ..Plan::usual(seed) };
        let mut run = done(Run::start(&mut stage, Shape::poll(order), plan));
        for step in Step::ALL {
            for victim in Victim::ALL {
                let enough = run.delivered() + 20;
                done(run.until("it goes on", |run| run.delivered() >= enough || run.is_written()));
                assert!(!run.is_written(), "{step:?}, {victim:?}: there is still a load");
                done(soak::kill_at(&mut run, step, victim));
            }
        }
        run.stop_writing();
        let report = valid(done(run.finish()));
        assert_eq!(report.charged, 0, "an outage is nobody's fault");
    }
}

#[test]
fn another_relay_takes_over_from_one_that_is_killed_and_from_one_that_stands_still() {
    let Some(mut stage) = stage(Kind::Millrace) else { return };
    let plan = Plan { transactions: 150, ..Plan::usual(31) };
    let mut run = done(Run::prepare(&mut stage, Shape::poll(Asked::Key).with(&IMPATIENT), plan));
    done(run.start_relay());
    done(run.start_relay());
    run.take();
    run.write();
    done(run.until_delivered(150));
    // Both wait for confirms; one of them dies there.
    done(soak::kill_at(&mut run, Step::Confirm, Victim::Relay));
    let enough = run.delivered() + 150;
    done(run.until("the two share again", |run| run.delivered() >= enough || run.is_written()));
    // One is frozen with rows in its hands; the database takes them from it.
    let url = run.url();
    let held = done(Held::hold(run.stage, &url, Step::Confirm));
    run.relays[0].pause();
    done(held.let_go(run.stage));
    done(run.until("the writers are done", Run::is_written));
    let late = "SELECT count(*) FROM outbox_messages WHERE processed_on_utc IS NULL";
    done(run.until("the other has marked all", |run| done(run.sql(late)) == "0"));
    run.relays[0].go_on();
    valid(done(run.finish()));
}

#[test]
fn a_broker_that_is_away_for_longer_than_a_batch_may_last_costs_no_attempt_and_no_lock_is_held() {
    let Some(mut stage) = stage(Kind::Millrace) else { return };
    let plan = Plan { transactions: 100, ..Plan::usual(41) };
    let mut run = done(Run::start(&mut stage, Shape::poll(Asked::None).with(&IMPATIENT), plan));
    done(run.until_delivered(100));
    let resting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                   AND application_name LIKE 'millrace-relay%' AND state LIKE 'idle in transaction%'";
    // Silent, then dead.
    let url = run.url();
    let held = done(Held::hold(run.stage, &url, Step::Confirm));
    done(run.until("the rows are given back", |run| done(run.sql(resting)) == "0"));
    done(held.let_go(run.stage));
    done(run.until_delivered(300));
    done(Victim::Broker.kill(&mut run));
    done(run.until("the writers are done", Run::is_written));
    done(run.until("nobody is in a transaction", |run| done(run.sql(resting)) == "0"));
    let locked = "SELECT count(*) FROM outbox_messages WHERE processed_on_utc IS NULL AND id NOT IN
                  (SELECT id FROM outbox_messages WHERE processed_on_utc IS NULL FOR UPDATE SKIP LOCKED)";
    done(run.until("nobody has rows in its hands", |run| done(run.sql(locked)) == "0"));
    done(Victim::Broker.revive(&mut run));
    let report = valid(done(run.finish()));
    assert_eq!((report.charged, report.parked), (0, 0), "an outage is nobody's fault");
}

#[test]
fn thousands_of_rows_that_cannot_be_published_at_the_head_stop_nobody() {
    let Some(mut stage) = stage(Kind::Millrace) else { return };
    let poison = Plan { keys: 50, transactions: 100, ..Plan::usual(51).with_poison(100) };
    let mut run = done(Run::prepare(&mut stage, Shape::poll(Asked::None), poison.clone()));
    run.write();
    done(run.until("the head is poison", Run::is_written));
    assert!(run.committed() > 2000, "there are thousands");
    run.plan = Plan { poison_percent: 0, transactions: 30, seed: 52, ..poison };
    run.write();
    done(run.until("the rest is written", Run::is_written));
    run.take();
    done(run.start_relay());
    let report = valid(done(run.finish()));
    assert!(report.due > 400 && report.parked > 2000, "{report}");
    assert_eq!(report.duplicates, 0);
}

#[test]
fn a_relay_that_is_told_to_end_marks_all_that_it_has_published() {
    let Some(mut stage) = stage(Kind::Millrace) else { return };
    for (order, seed) in [(Asked::Key, 61), (Asked::None, 62)] {
        let plan = Plan { transactions: 90, ..Plan::usual(seed) };
        let mut run = done(Run::start(&mut stage, Shape::poll(order), plan));
        for moment in [100, 217, 409, 700] {
            done(run.until("it goes on", |run| run.delivered() >= moment || run.is_written()));
            done(run.end_relays());
            done(run.start_relay());
        }
        let report = valid(done(run.finish()));
        assert_eq!(report.duplicates, 0, "what was published was marked before the end");
    }
}
