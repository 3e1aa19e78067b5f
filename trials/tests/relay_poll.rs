//! `millrace relay` and its table: what others do to it, and what a change of settings makes of it.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "runs commands, and counts"
)]

#[path = "support/relay.rs"]
mod support;

use support::{done, stage};
use trials::chaos::broker::Kind;
use trials::relay::run::Asked;
use trials::relay::{Plan, Run, Shape};

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
