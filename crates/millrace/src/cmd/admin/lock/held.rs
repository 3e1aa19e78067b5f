//! A lease as its holder counts it: from before it asked, so that it is over here before it is over at the broker.

use std::time::{Duration, Instant};

/// A lease that runs.
///
/// ```text
/// asked      1/3               3/4        19/20   1
///   ├─────────┼─────────────────┼───────────┼─────┤
///      rests  │ renews          │ the command     │ another may get
///             │ until it works  │ is asked to end │ the lock
///                                           └ and killed here
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    asked: Instant,
    lease: Duration,
}

/// What a holder does at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Now {
    /// Nothing before this time.
    Rest(Instant),
    Renew,
    /// The command is to end by itself; the lease may still be renewed.
    End,
    Kill,
}

impl Held {
    /// `asked`: before the question was sent that gave the lease.
    pub(super) fn new(asked: Instant, lease: Duration) -> Self {
        Self { asked, lease }
    }

    pub(super) fn now(&self, now: Instant) -> Now {
        let passed = now.saturating_duration_since(self.asked);
        if passed < self.lease / 3 {
            Now::Rest(self.asked + self.lease / 3)
        } else if passed < self.lease * 3 / 4 {
            Now::Renew
        } else if passed < self.killed_after() {
            Now::End
        } else {
            Now::Kill
        }
    }

    /// When the command is killed, if the lease is not renewed.
    pub(super) fn killed_at(&self) -> Instant {
        self.asked + self.killed_after()
    }

    /// Between two tries to renew it.
    pub(super) fn pause(&self) -> Duration {
        self.lease / 20
    }

    fn killed_after(&self) -> Duration {
        self.lease * 19 / 20
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::disallowed_methods, reason = "times are counted from one that is")]
    fn a_lease_is_renewed_at_a_third_and_given_up_before_it_is_over() {
        let asked = Instant::now();
        let held = Held::new(asked, Duration::from_secs(60));
        let at = |seconds| held.now(asked + Duration::from_secs(seconds));
        let third = asked + Duration::from_secs(20);
        assert_eq!([at(0), at(19)], [Now::Rest(third); 2]);
        assert_eq!([at(20), at(44)], [Now::Renew; 2]);
        assert_eq!([at(45), at(56)], [Now::End; 2]);
        assert_eq!([at(57), at(1_000)], [Now::Kill; 2]);
        assert_eq!(held.killed_at(), asked + Duration::from_secs(57));
    }
}
