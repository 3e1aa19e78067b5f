//! How long the log's writer waits for more before it writes and syncs: a commit delay that sets itself.
//!
//! A sync costs about as much for ten messages as for one, and so do the wake-ups behind it. While messages come one
//! by one but often, a short wait therefore saves most of the work. It must cost nothing where it gains nothing:
//! for messages that are rare, for publishers that wait for their confirms before they go on, and under full load,
//! where a sync serves many messages anyway.
//!
//! So the delay follows what comes. It begins only where several appends are expected within its bound, is over
//! when enough bytes wait, and ends early when nothing more comes. Where most delays end because nothing more
//! came, publishers wait for us: then there is none for a while. PostgreSQL has this as `commit_delay`, set by hand.
//!
//! This core is told the time and what came, and says how long the thread may sleep.

/// A delay is worth while where the usual gap between two appends is at most this part of its bound.
const GAPS_MIN: (u64, u64) = (5, 2);
/// With so many bytes a sync is well used.
const BYTES_ENOUGH: u64 = 64 * 1024;
/// The shortest sleep: one costs the processor as much as some microseconds of work.
const PAUSE_MIN_US: u64 = 75;
/// Commits without a delay after too many delays that ended in vain: at first, and after one such rest followed another.
const REST_COMMITS_MIN: u32 = 64;
const REST_COMMITS_MAX: u32 = 4096;
/// The averages of gaps and of vain delays move by a part in so many with each commit.
const GAP_INERTIA: u64 = 8;
const VAIN_INERTIA: u64 = 32;
/// A gap between two appends counts at most so much: one long pause says little about what follows.
const GAP_MAX_US: u64 = 10_000;
/// The part of delays whose last sleep brought nothing, in 65,536ths: beyond the first there is no delay for a while.
/// After it counting begins with the second.
const VAIN_MAX: u64 = 45_000;
const VAIN_AFTER_REST: u64 = 43_000;
/// All of them are in vain.
const VAIN_ALL: u64 = 65_536;

/// Decides for one log.
#[derive(Debug)]
pub(crate) struct CommitDelay {
    /// The whole delay of one commit, us; 0: there never is one.
    max_us: u64,
    /// Between two appends on average, in 16ths of a microsecond.
    gap_16ths: u64,
    /// When the last commit's first append was taken.
    last_us: u64,
    /// How many there were from then on.
    arrived: u64,
    /// When this commit's delay began.
    begun_us: u64,
    vain: u64,
    /// Commits that are to have no delay, and how many the next rest has.
    resting: u32,
    next_rest: u32,
}

impl CommitDelay {
    pub(crate) fn new(max_us: u64) -> Self {
        Self {
            max_us,
            gap_16ths: GAP_MAX_US * 16,
            last_us: 0,
            arrived: 1,
            begun_us: 0,
            vain: 0,
            resting: 0,
            next_rest: REST_COMMITS_MIN,
        }
    }

    /// `count` appends of `bytes` in all were taken: how long to sleep before the next look. None: they are to be
    /// written now.
    pub(crate) fn first(&mut self, now_us: u64, count: usize, bytes: u64) -> Option<u64> {
        let gap_us = now_us.saturating_sub(self.last_us) / self.arrived.max(1);
        let gap_16ths = gap_us.min(GAP_MAX_US) * 16;
        self.gap_16ths = (self.gap_16ths * (GAP_INERTIA - 1) + gap_16ths) / GAP_INERTIA;
        (self.last_us, self.begun_us, self.arrived) = (now_us, now_us, count as u64);
        if self.resting > 0 {
            self.resting -= 1;
            return None;
        }
        let is_dense = self.gap_16ths * GAPS_MIN.0 <= self.max_us * 16 * GAPS_MIN.1;
        (is_dense && bytes < BYTES_ENOUGH).then(|| self.pause(0)).flatten()
    }

    /// `more` appends came meanwhile, and now there are `bytes` in all.
    pub(crate) fn next(&mut self, now_us: u64, more: usize, bytes: u64) -> Option<u64> {
        self.arrived += more as u64;
        let spent_us = now_us.saturating_sub(self.begun_us);
        let has_ended = more == 0 || bytes >= BYTES_ENOUGH;
        let pause_us = if has_ended { None } else { self.pause(spent_us) };
        if pause_us.is_none() {
            self.learn(more == 0);
        }
        pause_us
    }

    /// A delay is over. In vain: its last sleep brought nothing.
    fn learn(&mut self, was_vain: bool) {
        let target = if was_vain { VAIN_ALL } else { 0 };
        self.vain = (self.vain * (VAIN_INERTIA - 1) + target) / VAIN_INERTIA;
        if self.vain > VAIN_MAX {
            (self.vain, self.resting) = (VAIN_AFTER_REST, self.next_rest);
            self.next_rest = (self.next_rest * 2).min(REST_COMMITS_MAX);
        } else if self.vain < VAIN_ALL / 2 {
            self.next_rest = REST_COMMITS_MIN;
        }
    }

    /// Twice the usual gap, within what is left of the delay: if nothing comes in that time, nothing will.
    fn pause(&self, spent_us: u64) -> Option<u64> {
        let left_us =
            self.max_us.checked_sub(spent_us).filter(|left_us| *left_us >= PAUSE_MIN_US / 2)?;
        Some((self.gap_16ths / 8).max(PAUSE_MIN_US).min(left_us))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log whose sync takes `SYNC_US`, and those who append to it.
    struct World {
        delay: CommitDelay,
        now_us: u64,
        /// When the next append of each publisher comes.
        due_us: Vec<u64>,
        /// From one append of a publisher to the next. None: it waits for its confirm, then goes on.
        every_us: Option<u64>,
        bytes_each: u64,
        commits: u64,
        appends: u64,
    }

    const SYNC_US: u64 = 90;
    /// From a confirm to the next append.
    const TURN_US: u64 = 60;
    const MAX_US: u64 = 300;

    impl World {
        fn new(publishers: u64, every_us: Option<u64>) -> Self {
            let due_us = (0..publishers).map(|number| number * 7).collect();
            let delay = CommitDelay::new(MAX_US);
            Self { delay, now_us: 0, due_us, every_us, bytes_each: 1024, commits: 0, appends: 0 }
        }

        /// Who appends at or before `now_us`; they are out until the commit.
        fn take(&mut self, taken: &mut Vec<usize>) -> usize {
            let before = taken.len();
            for number in 0..self.due_us.len() {
                while self.due_us[number] <= self.now_us {
                    taken.push(number);
                    self.due_us[number] = match self.every_us {
                        Some(every_us) => self.due_us[number] + every_us,
                        None => u64::MAX,
                    };
                }
            }
            taken.len() - before
        }

        /// The longest delay of a commit, us.
        fn run(&mut self, until_us: u64) -> u64 {
            let mut longest_us = 0;
            while self.now_us < until_us {
                let mut taken = Vec::new();
                self.now_us = self.now_us.max(self.due_us.iter().copied().min().unwrap_or(0));
                let begun_us = self.now_us;
                let count = self.take(&mut taken);
                let mut pause =
                    self.delay.first(self.now_us, count, count as u64 * self.bytes_each);
                while let Some(pause_us) = pause {
                    self.now_us += pause_us;
                    let more = self.take(&mut taken);
                    let bytes = taken.len() as u64 * self.bytes_each;
                    pause = self.delay.next(self.now_us, more, bytes);
                }
                longest_us = longest_us.max(self.now_us - begun_us);
                self.now_us += SYNC_US;
                (self.commits, self.appends) =
                    (self.commits + 1, self.appends + taken.len() as u64);
                if self.every_us.is_none() {
                    let after = self.now_us + TURN_US;
                    taken.iter().for_each(|number| self.due_us[*number] = after + *number as u64);
                }
            }
            longest_us
        }

        fn per_commit(&self) -> f64 {
            self.appends as f64 / self.commits as f64
        }
    }

    #[test]
    fn rare_appends_are_written_at_once() {
        let mut world = World::new(1, Some(1_000));
        assert_eq!(world.run(1_000_000), 0);
        assert!(world.per_commit() < 1.01, "{}", world.per_commit());
    }

    #[test]
    fn frequent_appends_share_a_sync_and_none_waits_beyond_the_bound() {
        let mut world = World::new(1, Some(100));
        assert!(world.run(1_000_000) <= MAX_US);
        assert!(world.per_commit() > 3.0, "{}", world.per_commit());
    }

    #[test]
    fn a_publisher_that_waits_for_each_confirm_waits_no_longer() {
        let mut world = World::new(1, None);
        world.run(1_000_000);
        let each_us = world.now_us / world.appends;
        assert!(each_us <= SYNC_US + TURN_US + 5, "{each_us} us from one to the next");
    }

    #[test]
    fn publishers_that_wait_for_their_confirms_lose_little() {
        for publishers in [2, 3, 10] {
            let mut world = World::new(publishers, None);
            world.run(2_000_000);
            let each_us = world.now_us * publishers / world.appends;
            let most_us = (SYNC_US + TURN_US) * 118 / 100 + publishers * 2;
            assert!(each_us <= most_us, "{publishers} of them: {each_us} us from one to the next");
        }
    }

    #[test]
    fn a_commit_of_many_bytes_does_not_wait() {
        let mut world = World::new(1, Some(100));
        world.bytes_each = BYTES_ENOUGH;
        assert_eq!(world.run(100_000), 0);
    }

    #[test]
    fn a_bound_of_nothing_means_no_delay() {
        let mut delay = CommitDelay::new(0);
        assert!((1..1_000).all(|turn| delay.first(turn * 10, 1, 1).is_none()));
    }

    #[test]
    fn after_a_rest_frequent_appends_share_a_sync_again() {
        let mut world = World::new(4, None);
        world.run(1_000_000);
        let (every_us, first_us) = (100, world.now_us);
        world.every_us = Some(every_us);
        world.due_us = vec![first_us];
        (world.commits, world.appends) = (0, 0);
        world.run(first_us + 1_000_000);
        assert!(world.per_commit() > 2.5, "{}", world.per_commit());
    }
}
