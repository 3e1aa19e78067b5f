//! `--rate`: how many messages a second all queues may publish together.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// How often permits are given out.
const TICK: Duration = Duration::from_millis(10);
/// What a pause may be made up for afterwards, in seconds of the rate.
const BURST_S: f64 = 0.05;

/// Gives one permit for each message.
#[derive(Debug)]
pub(in crate::cmd) struct Pace {
    permits: Semaphore,
}

impl Pace {
    /// Starts to give out `rate` permits a second, until nobody but the giver has the pace.
    pub(in crate::cmd) fn start(rate: f64) -> Arc<Self> {
        let pace = Arc::new(Self { permits: Semaphore::new(0) });
        let given = Arc::downgrade(&pace);
        tokio::spawn(async move {
            let mut ticks = interval(TICK);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
            let (mut owed, mut last) = (1.0, Instant::now());
            loop {
                let now = ticks.tick().await;
                let Some(pace) = given.upgrade() else { return };
                owed += rate * now.saturating_duration_since(last).as_secs_f64();
                last = now;
                let (grant, rest) = grant(owed, rate, pace.permits.available_permits());
                owed = rest;
                pace.permits.add_permits(grant);
            }
        });
        pace
    }

    /// Takes a permit if there is one.
    pub(super) fn try_take(&self) -> bool {
        self.permits.try_acquire().map(tokio::sync::SemaphorePermit::forget).is_ok()
    }

    /// Waits for a permit, and takes it.
    pub(in crate::cmd) async fn take(&self) {
        match self.permits.acquire().await {
            Ok(permit) => permit.forget(),
            Err(_) => unreachable!("nobody closes it"),
        }
    }
}

/// How many permits to add where `owed` are due and `unused` were not taken, and what stays owed.
fn grant(owed: f64, rate: f64, unused: usize) -> (usize, f64) {
    let most = (rate * BURST_S).max(1.0) as usize;
    let whole = owed.floor();
    let grant = (whole as usize).min(most.saturating_sub(unused));
    (grant, owed - whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_low_rate_gives_one_now_and_then_and_a_pause_is_not_made_up_for() {
        let (mut given, mut owed) = (0, 0.0);
        for _ in 0..100 {
            owed += 5.0 * 0.01;
            let (now, rest) = grant(owed, 5.0, 0);
            given += now;
            owed = rest;
        }
        assert!((4..=5).contains(&given), "{given} in a second");
        assert_eq!(grant(5000.0, 1000.0, 0).0, 50);
        assert_eq!(grant(5000.0, 1000.0, 50).0, 0, "nobody took those before");
        assert_eq!(grant(0.9, 1000.0, 0), (0, 0.9));
    }
}
