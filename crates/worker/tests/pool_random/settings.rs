//! Random settings.

use std::time::Duration;

use worker::pool::{BreakerSettings, Order, PipelineSettings, Settings, TargetSettings};
use worker::value::Time;

/// A small seeded generator.
#[derive(Debug)]
pub(crate) struct Random(client::Chance);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(client::Chance::new(seed))
    }

    /// From nothing to `most`, without it.
    pub(crate) fn below(&mut self, most: u64) -> u64 {
        ((u128::from(self.0.next_bits()) * u128::from(most)) >> 64) as u64
    }

    /// True so many times of a hundred.
    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Short mostly, up to `most`.
    pub(crate) fn time(&mut self, most: Duration) -> Duration {
        let most = most / 4_u32.pow(self.below(4) as u32);
        Duration::from_nanos(self.below(most.as_nanos() as u64 + 1))
    }

    pub(crate) fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

pub(crate) fn settings(random: &mut Random) -> Settings {
    let targets: Vec<TargetSettings> = (0..=random.below(3)).map(|at| target(random, at)).collect();
    let pipelines =
        (0..=random.below(4)).map(|at| pipeline(random, at, targets.len() as u64)).collect();
    let buffer_bytes = random.one(&[2_000, 10_000, 1_000_000]);
    let settings = Settings { pipelines, targets, buffer_bytes };
    assert_eq!(settings.problems(), Vec::<String>::new());
    settings
}

fn target(random: &mut Random, at: u64) -> TargetSettings {
    let rate = random.percent(50).then(|| 0.5 + random.below(2000) as f64 / 10.0);
    TargetSettings {
        concurrency: 1 + random.below(20) as usize,
        rate,
        burst: rate.filter(|_| random.percent(50)).map(|_| 1 + random.below(10) as u32),
        run_jobs_max: random.one(&[1, 1, 2, 5, 1000]),
        linger: Time(random.one(&[
            Duration::ZERO,
            Duration::from_millis(50),
            Duration::from_secs(2),
        ])),
        breaker: BreakerSettings {
            failures: random.one(&[0, 1, 3, 10]),
            open_for: Time(random.one(&[Duration::from_millis(500), Duration::from_secs(30)])),
        },
        ..TargetSettings::new(format!("target-{at}"))
    }
}

fn pipeline(random: &mut Random, at: u64, targets: u64) -> PipelineSettings {
    let order = if random.percent(35) { Order::Key } else { Order::None };
    let key_rate = random.percent(25).then(|| 0.5 + random.below(200) as f64 / 10.0);
    PipelineSettings {
        priority: random.below(3) as u8,
        weight: 1 + random.below(5) as u32,
        concurrency: 1 + random.below(20) as usize,
        buffer: random.percent(70).then(|| 1 + random.below(60) as usize),
        order,
        key_concurrency: if order == Order::Key { 0 } else { random.one(&[0, 0, 1, 3]) },
        key_rate,
        key_burst: key_rate.filter(|_| random.percent(50)).map(|_| 1 + random.below(5) as u32),
        timeout: Time(Duration::from_millis(50 + random.below(10_000))),
        attempts_max: 1 + random.below(6) as u32,
        backoff: Time(Duration::from_millis(1 + random.below(2000))),
        backoff_max: Time(Duration::from_secs(2 + random.below(100))),
        ..PipelineSettings::new(
            format!("pipeline-{at}"),
            format!("target-{}", random.below(targets)),
        )
    }
}
