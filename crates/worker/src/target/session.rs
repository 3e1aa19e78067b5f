//! The access token of one set of credentials: one owner, one refresh at a time, and never too many.
//!
//! ```text
//!   ask ──> Use        a token is there and fresh, or a refresh was refused and the old one still lives
//!       ──> Refresh    the caller gets one: then `got` or `failed`
//!       ──> Wait       the last refresh is less than a second ago, and its token is refused already
//!       ──> Refused    the last refresh failed: the caller's jobs wait
//! ```
//!
//! Told the time. [`io::target::session`](crate::io::target) holds it while somebody refreshes.

use std::fmt;
use std::time::{Duration, Instant};

use crate::target::push::Verdict;

/// Least time between two refreshes: 60 in a minute at most, where Getui allows 100.
pub const SPACING: Duration = Duration::from_secs(1);
/// Longest wait after failed refreshes.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// A token is replaced so long before its end, or a tenth of its life, whichever is shorter.
const LEAD_MAX: Duration = Duration::from_secs(300);

/// An access token, and which one it is.
#[derive(Clone, PartialEq, Eq)]
pub struct Lease {
    pub token: String,
    pub generation: u64,
}

impl fmt::Debug for Lease {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "lease {} ***", self.generation)
    }
}

/// What the asker is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    Use(Lease),
    Refresh,
    /// The last refresh is too short ago: ask again then.
    Wait {
        until: Instant,
    },
    Refused(Verdict),
}

/// One set of credentials' access token.
#[derive(Debug, Default)]
pub struct Session {
    held: Option<Held>,
    generation: u64,
    began: Option<Instant>,
    failures: u32,
    refusal: Option<(Instant, Verdict)>,
}

#[derive(Debug)]
struct Held {
    lease: Lease,
    /// When it is to be replaced.
    fresh_until: Instant,
    ends: Instant,
}

impl Session {
    pub fn new() -> Self {
        Self::default()
    }

    /// Somebody needs the token.
    pub fn ask(&mut self, now: Instant) -> Ask {
        if let Some(held) = self.held.as_ref().filter(|held| now < held.fresh_until) {
            return Ask::Use(held.lease.clone());
        }
        let living = self.held.as_ref().filter(|held| now < held.ends).map(|held| &held.lease);
        if let Some((until, verdict)) = self.refusal.as_ref().filter(|(until, _)| now < *until) {
            return match living {
                Some(lease) => Ask::Use(lease.clone()),
                None => Ask::Refused(not_before(verdict.clone(), *until - now)),
            };
        }
        if let Some(next) = self.began.map(|began| began + SPACING).filter(|next| now < *next) {
            return match living {
                Some(lease) => Ask::Use(lease.clone()),
                None => Ask::Wait { until: next },
            };
        }
        self.began = Some(now);
        Ask::Refresh
    }

    /// There is a new one, good for so long.
    pub fn got(&mut self, now: Instant, token: String, life: Duration) -> Lease {
        self.generation += 1;
        let lease = Lease { token, generation: self.generation };
        let lead = (life / 10).min(LEAD_MAX);
        let (fresh_until, ends) = (now + life.saturating_sub(lead), now + life);
        self.held = Some(Held { lease: lease.clone(), fresh_until, ends });
        self.failures = 0;
        self.refusal = None;
        lease
    }

    /// There is none: nobody tries again for a while. The old one is used as long as it lives.
    pub fn failed(&mut self, now: Instant, verdict: Verdict) -> Ask {
        let wait = (SPACING * 2_u32.saturating_pow(self.failures.min(6))).min(WAIT_MAX);
        self.failures += 1;
        let wait = match &verdict {
            Verdict::Retry { after: Some(after), .. } => wait.max(*after),
            Verdict::Throttle { until, .. } => wait.max(*until),
            Verdict::Retry { after: None, .. }
            | Verdict::Done
            | Verdict::Dead { .. }
            | Verdict::Reject { .. }
            | Verdict::Auth { .. }
            | Verdict::Config { .. } => wait,
        };
        self.refusal = Some((now + wait, verdict));
        self.ask(now)
    }

    /// The provider does not take this token any more. A newer one is left alone.
    pub fn expired(&mut self, generation: u64) {
        self.held.take_if(|held| held.lease.generation == generation);
    }
}

/// The same refusal for those that ask later: not to come again before the next refresh.
fn not_before(verdict: Verdict, wait: Duration) -> Verdict {
    match verdict {
        Verdict::Retry { why, .. } => Verdict::Retry { after: Some(wait), why },
        Verdict::Throttle { scope, why, .. } => Verdict::Throttle { scope, until: wait, why },
        other @ (Verdict::Done
        | Verdict::Dead { .. }
        | Verdict::Reject { .. }
        | Verdict::Auth { .. }
        | Verdict::Config { .. }) => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn now() -> Instant {
        #[allow(clippy::disallowed_methods, reason = "a test needs some instant to begin at")]
        Instant::now()
    }

    fn away() -> Verdict {
        Verdict::Retry { after: None, why: "away".to_owned() }
    }

    #[test]
    fn a_token_is_replaced_before_it_ends_and_used_meanwhile() {
        let (mut session, now) = (Session::new(), now());
        assert_eq!(session.ask(now), Ask::Refresh);
        let lease = session.got(now, "one".to_owned(), HOUR);
        assert_eq!(session.ask(now + HOUR - LEAD_MAX - SPACING), Ask::Use(lease.clone()));
        let late = now + HOUR - LEAD_MAX;
        assert_eq!(session.ask(late), Ask::Refresh);
        assert_eq!(session.failed(late, away()), Ask::Use(lease), "the old one still lives");
        assert!(matches!(session.failed(now + HOUR, away()), Ask::Refused(_)));
    }

    #[test]
    fn an_expired_token_is_replaced_once_however_many_say_so() {
        let (mut session, now) = (Session::new(), now());
        assert_eq!(session.ask(now), Ask::Refresh);
        let first = session.got(now, "one".to_owned(), HOUR);
        session.expired(first.generation);
        let later = now + SPACING;
        assert_eq!(session.ask(later), Ask::Refresh);
        let second = session.got(later, "two".to_owned(), HOUR);
        session.expired(first.generation);
        assert_eq!(session.ask(later), Ask::Use(second));
    }

    #[test]
    fn no_minute_has_more_than_sixty_refreshes_whatever_the_provider_says() {
        let (mut session, start) = (Session::new(), now());
        let mut refreshes = 0;
        for ms in (0..60_000).step_by(10) {
            let now = start + Duration::from_millis(ms);
            match session.ask(now) {
                Ask::Refresh => {
                    refreshes += 1;
                    let lease = session.got(now, "new".to_owned(), HOUR);
                    session.expired(lease.generation);
                }
                Ask::Wait { until } => assert!(until <= now + SPACING),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(refreshes, 60);
    }

    #[test]
    fn failed_refreshes_come_less_and_less_often() {
        let (mut session, mut now) = (Session::new(), now());
        let mut waits = Vec::new();
        for _ in 0..8 {
            assert_eq!(session.ask(now), Ask::Refresh);
            let Ask::Refused(Verdict::Retry { after: Some(wait), .. }) =
                session.failed(now, away())
            else {
                panic!("there is no token");
            };
            waits.push(wait.as_secs());
            now += wait;
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
    }

    #[test]
    fn a_lease_does_not_show_its_token() {
        let lease = Session::new().got(now(), "canary".to_owned(), HOUR);
        assert!(!format!("{lease:?}").contains("canary"));
    }
}
