//! `millrace relay` at its limits: a long backlog in little memory, and a broker that takes nothing.

#[path = "support/relay.rs"]
mod support;

use support::{dir, done, given, millrace, stage, valid};
use trials::chaos::broker::Kind;
use trials::postgres::Options;
use trials::relay::harm::Victim;
use trials::relay::run::{Asked, Mark};
use trials::relay::{Plan, Run, Shape, Stage, backlog};

/// What a relay may ever have in memory.
const MEMORY_MAX: u64 = 100 << 20;

#[test]
fn a_long_backlog_is_drained_in_little_memory() {
    let Some(mut stage) = stage(Kind::Millrace) else { return };
    // A million: `trials relay --backlog 1000000`.
    let long = Shape::poll(Asked::None).on_success(Mark::Delete);
    let wide = Shape::poll(Asked::Key).on_success(Mark::Delete);
    // One transaction that PostgreSQL decodes as a whole.
    let log = Shape::wal(Asked::Key);
    for (shape, rows, bytes) in [(long, 100_000, 200), (wide, 3_000, 15_000), (log, 50_000, 200)] {
        let (source, order) = (shape.source, shape.order);
        let drained = done(backlog::drain(&mut stage, shape, rows, bytes));
        println!("{source:?} {order:?}: {drained}");
        assert!(drained.memory_peak < MEMORY_MAX, "{drained}");
        assert_eq!(drained.delivered, rows, "{drained}");
    }
}

#[test]
fn a_relay_waits_without_a_transaction_while_the_broker_blocks_publishers() {
    // No disk has so much free.
    let (options, always) = (Options::default(), ["--set", "disk_free_limit=1000000000000000000"]);
    let stage = Stage::start_with(Kind::Millrace, millrace(), &dir(), &options, &always);
    let Some(mut stage) = given(stage) else { return };
    let shape = Shape::poll(Asked::None).with(&["--batch-deadline", "500ms"]);
    let mut run = done(Run::start(&mut stage, shape, Plan::usual(71)));
    done(run.until("the writers are done", Run::is_written));
    let resting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                   AND application_name LIKE 'millrace-relay%' AND state LIKE 'idle in transaction%'";
    // It stays so: looked at many times, over more than a batch may last.
    for _ in 0..40 {
        let age = "SELECT coalesce(max(extract(epoch FROM now() - xact_start)), 0) < 3
                   FROM pg_stat_activity WHERE application_name LIKE 'millrace-relay%'
                     AND state LIKE 'idle in transaction%'";
        assert_eq!(done(run.sql(age)), "t", "no transaction lasts");
        support::pause();
    }
    done(run.until("nobody is in a transaction", |run| done(run.sql(resting)) == "0"));
    let before = done(run.judge());
    // Rows may be parked: the broker took some before it saw its disk, and was slow with the others.
    assert_eq!(before.charged, 0, "{before}");
    assert!(before.delivered < before.due, "it is blocked: {before}");
    // A broker with room.
    run.stage.broker.setup.arguments.clear();
    done(Victim::Broker.kill(&mut run));
    done(Victim::Broker.revive(&mut run));
    let report = valid(done(run.finish()));
    assert_eq!((report.charged, report.parked), (0, 0), "nobody was charged for it");
}
