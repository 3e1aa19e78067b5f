//! The numbers that a screen shows: of one relay, or of all sources together.

use super::{Metrics, Step};

/// How it stands at one moment.
#[derive(Clone, Debug, Default)]
pub struct Total {
    pub confirmed: u64,
    pub backlog: i64,
    /// Age of the oldest row that waits, in seconds.
    pub oldest_age: f64,
    pub parked: i64,
    pub dead: i64,
    /// Sum of nanoseconds and count of each step.
    pub steps: [(u64, u64); Step::ALL.len()],
    pub problem: Option<String>,
    pub last_failure: Option<String>,
}

impl Metrics {
    /// How it stands now.
    pub fn total(&self) -> Total {
        Total {
            confirmed: self.confirmed.get(),
            backlog: self.backlog.get(),
            oldest_age: self.oldest_age.get(),
            parked: self.parked.get(),
            dead: self.dead_now.get(),
            steps: self.step_sums.each_ref().map(|(sum, count)| (sum.get(), count.get())),
            problem: self.problem(),
            last_failure: self.last_failure(),
        }
    }
}

impl Total {
    /// Counts `other` in. Its words are not taken.
    pub(super) fn add(&mut self, other: &Self) {
        self.confirmed += other.confirmed;
        self.backlog += other.backlog;
        self.oldest_age = self.oldest_age.max(other.oldest_age);
        self.parked += other.parked;
        self.dead += other.dead;
        for ((sum, count), (more, times)) in self.steps.iter_mut().zip(other.steps) {
            *sum += more;
            *count += times;
        }
    }
}
