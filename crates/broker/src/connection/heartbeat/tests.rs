//! When heartbeats are due and clients dead.
#![allow(clippy::disallowed_methods, reason = "a test: the time begins now")]

use super::*;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_heartbeat_is_due_after_half_an_interval_and_a_client_dead_after_two() {
    let start = Instant::now();
    let mut heartbeat = Heartbeat::new(start);
    assert_eq!((heartbeat.next(), heartbeat.dead_at()), (None, None));
    heartbeat.interval = 10 * SECOND;
    assert_eq!(heartbeat.next(), Some(start + 5 * SECOND));
    assert_eq!(heartbeat.dead_at(), Some(start + 20 * SECOND));
    heartbeat.sent(start + SECOND);
    heartbeat.received(start + 2 * SECOND);
    assert_eq!(heartbeat.next(), Some(start + 6 * SECOND));
    assert_eq!(heartbeat.dead_at(), Some(start + 22 * SECOND));
}

#[test]
fn a_client_that_is_not_read_is_not_dead() {
    let start = Instant::now();
    let mut heartbeat = Heartbeat::new(start);
    heartbeat.interval = 10 * SECOND;
    heartbeat.reads(start + SECOND, false);
    assert_eq!(heartbeat.dead_at(), None);
    heartbeat.reads(start + 60 * SECOND, true);
    assert_eq!(heartbeat.dead_at(), Some(start + 80 * SECOND));
}
