//! `millrace relay` between a real PostgreSQL and RabbitMQ: the same promises with a broker that is not ours.

#[path = "support/relay.rs"]
mod support;

use support::{done, stage, valid};
use trials::chaos::broker::Kind;
use trials::relay::harm::Victim;
use trials::relay::hold::Step;
use trials::relay::run::{Asked, Mark};
use trials::relay::{Plan, Run, Shape, Stage, soak};

#[test]
fn rabbitmq_gets_what_was_committed_whoever_is_killed_and_nobody_pays_for_its_alarms() {
    let Some(mut stage) = stage(Kind::Rabbitmq) else { return };
    clean(&mut stage);
    killed(&mut stage);
    log_killed(&mut stage);
    blocked(&mut stage);
}

fn clean(stage: &mut Stage) {
    let plan = Plan::usual(81).with_poison(4);
    let shape = Shape::poll(Asked::Key).on_success(Mark::Delete);
    let report = valid(done(done(Run::start(stage, shape, plan)).finish()));
    assert_eq!((report.duplicates, report.charged), (0, 0));
}

fn killed(stage: &mut Stage) {
    let mut run = done(Run::start(stage, Shape::poll(Asked::Key), endless(82)));
    keep_declared(&run);
    for victim in [Victim::Relay, Victim::Postgres] {
        let enough = run.delivered() + 83;
        done(run.until_delivered(enough));
        done(victim.kill(&mut run));
        done(victim.revive(&mut run));
    }
    let enough = run.delivered() + 20;
    done(run.until_delivered(enough));
    // It takes its time to come back.
    done(soak::kill_at(&mut run, Step::Confirm, Victim::Broker));
    run.stop_writing();
    let report = valid(done(run.finish()));
    assert_eq!(report.charged, 0, "an outage is nobody's fault");
}

/// More than any machine gets through: they write until they are stopped, so that every kill meets a load.
fn endless(seed: u64) -> Plan {
    Plan { transactions: 100_000, writers: 2, ..Plan::usual(seed) }
}

/// What was declared outlives a kill: RabbitMQ answers a declare before its database has it on disk.
fn keep_declared(run: &Run<'_>) {
    done(run.stage.rabbitmqctl(&["eval", "mnesia:sync_log()."]));
}

/// With the log as the source, commits come in their order.
fn log_killed(stage: &mut Stage) {
    let mut run = done(Run::start(stage, Shape::wal(Asked::None), endless(84)));
    keep_declared(&run);
    let both = [Victim::Relay, Victim::Postgres];
    for (turn, victim) in both.into_iter().cycle().take(6).enumerate() {
        let enough = run.delivered() + 60 + 7 * turn;
        done(run.until_delivered(enough));
        done(victim.kill(&mut run));
        done(victim.revive(&mut run));
        // A relay that starts without its database is told so, and ends.
        done(run.until("it reads the log", |run| run.is_streaming()));
    }
    let enough = run.delivered() + 20;
    done(run.until_delivered(enough));
    done(Victim::Broker.kill(&mut run));
    done(Victim::Broker.revive(&mut run));
    run.stop_writing();
    let report = valid(done(run.finish()));
    assert_eq!(report.charged, 0, "an outage is nobody's fault");
}

fn blocked(stage: &mut Stage) {
    let shape = Shape::poll(Asked::None).with(&["--batch-deadline", "500ms"]);
    let mut run = done(Run::start(stage, shape, endless(83)));
    done(run.until_delivered(100));
    done(run.stage.rabbitmqctl(&["set_vm_memory_high_watermark", "0.0001"]));
    let enough = run.committed() + 100;
    done(run.until("others come meanwhile", |run| run.committed() >= enough));
    run.stop_writing();
    done(run.until("the writers are done", Run::is_written));
    let resting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                   AND application_name LIKE 'millrace-relay%' AND state LIKE 'idle in transaction%'";
    done(run.until("nobody is in a transaction", |run| done(run.sql(resting)) == "0"));
    let before = done(run.judge());
    assert!(before.delivered < before.due, "it is blocked: {before}");
    done(run.stage.rabbitmqctl(&["set_vm_memory_high_watermark", "0.4"]));
    let report = valid(done(run.finish()));
    assert_eq!((report.charged, report.parked), (0, 0), "nobody was charged for it");
}
