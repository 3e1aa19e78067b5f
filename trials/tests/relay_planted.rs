//! Relays that somebody might have written, each with one bug: the trials find every one of them.

#[path = "support/relay.rs"]
mod support;

use std::time::Duration;

use support::{dir, done, given};
use trials::chaos::broker::Kind;
use trials::relay::harm::Victim;
use trials::relay::planted::Bug;
use trials::relay::run::Asked;
use trials::relay::{Plan, Report, Run, Shape, Stage};

/// Runs a relay with that bug, under the harm that brings it out.
fn hunt(stage: &mut Stage, bug: Bug) -> Report {
    let trials = env!("CARGO_BIN_EXE_trials").into();
    let shape = Shape { planted: Some((trials, bug)), ..Shape::poll(Asked::Key) };
    let mut run = done(Run::start(stage, shape, Plan::usual(40 + bug as u64)));
    if bug.breaks().is_some() {
        run.quiet = Duration::from_secs(5);
    }
    for rows in [150, 300, 450] {
        if let Err(failure) = run.until_delivered(rows) {
            // A bug may lose so many rows that there is nothing left to wait for: the verdict counts them.
            assert!(bug.breaks().is_some(), "{failure}");
            break;
        }
        let victim = match bug {
            Bug::MarksFirst | Bug::Unconfirmed => {
                // What is sent from here on, nobody reads.
                done(run.stage.broker.stop());
                let marked =
                    "SELECT count(*) FROM outbox_messages WHERE processed_on_utc IS NOT NULL";
                let count = |run: &Run<'_>| done(run.sql(marked)).parse::<usize>().unwrap_or(0);
                let before = count(&run);
                done(run.until("rows are marked", |run| count(run) > before || run.is_written()));
                Victim::Broker
            }
            Bug::None => Victim::ALL[rows / 150 - 1],
            Bug::Cursor | Bug::NewIds | Bug::Unordered => continue,
        };
        done(victim.kill(&mut run));
        done(victim.revive(&mut run));
    }
    done(run.verdict())
}

#[test]
fn a_relay_without_a_bug_is_valid_and_every_bug_is_found_by_the_promise_that_it_breaks() {
    let Some(mut stage) = given(Stage::start(Kind::Millrace, support::millrace(), &dir())) else {
        return;
    };
    for bug in Bug::ALL {
        let report = hunt(&mut stage, bug);
        println!("{bug:?}: {report}");
        match bug.breaks() {
            None => assert!(report.is_valid(), "{report}"),
            Some(promise) => assert!(report.breaks(promise), "{bug:?} is not found: {report}"),
        }
    }
}
