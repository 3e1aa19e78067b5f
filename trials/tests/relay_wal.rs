//! `millrace relay run --source wal` and `--source messages`: commits in their order, whoever is killed.

#[path = "support/relay.rs"]
mod support;

use std::time::Duration;

use support::{done, stage, valid};
use trials::chaos::broker::Kind;
use trials::relay::harm::Victim;
use trials::relay::process::Relay;
use trials::relay::run::Asked;
use trials::relay::{Plan, Run, Shape};

/// How a relay ends whose slot is lost.
const SLOT_LOST: i32 = 3;

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
        }
        let report = valid(done(run.finish()));
        assert_eq!(report.charged, 0, "an outage is nobody's fault");
    }
}

#[test]
fn another_relay_waits_for_the_slot_and_takes_over_and_one_that_is_told_to_end_repeats_little() {
    let Some(mut stage) = stage(Kind::Millrace) else { return };
    let plan = Plan { transactions: 90, ..Plan::usual(121) };
    let largest = plan.rows.end as usize - 1;
    let mut run = done(Run::start(&mut stage, Shape::wal(Asked::None), plan));
    for moment in [80, 300, 500] {
        done(run.until("it goes on", |run| run.delivered() >= moment || run.is_written()));
        done(run.end_relays());
        done(run.start_relay());
    }
    done(run.until_delivered(600));
    let report = done(run.judge());
    // A slot knows whole transactions only: of the one under way, some rows come again.
    assert!(report.duplicates < 3 * largest, "each end repeats a transaction at most: {report}");
    done(run.start_relay());
    let mut first = run.relays.remove(0);
    done(first.kill9());
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
    done(run.sql(&format!("SELECT pg_drop_replication_slot('{}')", run.relay_slot())));
    done(run.until("rows are written that no slot has", Run::is_written));
    let log = run.stage.dir.join("refused.txt");
    let mut refused = done(Relay::start(&run.stage.millrace, &run.words(), &log));
    let status = done(refused.wait(Duration::from_secs(20)));
    assert_eq!(status.code(), Some(SLOT_LOST), "{}", refused.last_words());
    assert!(refused.last_words().contains("resync"), "{}", refused.last_words());
    assert_eq!(run.slot_state(), "", "it made no new one by itself");
    let mut resync = done(Relay::start(&run.stage.millrace, &run.words_of("resync"), &log));
    let status = done(resync.wait(Duration::from_secs(60)));
    assert!(status.success(), "{}", resync.last_words());
    done(run.start_relay());
    valid(done(run.finish()));
}
