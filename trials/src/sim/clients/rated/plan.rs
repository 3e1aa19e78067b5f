//! The queues with rates of a run.

use machine::{Arguments, Value};

use super::meter::Meter;

/// A queue of the run.
pub(super) struct Plan {
    pub(super) name: &'static str,
    /// The stream that it reads, which has so many partitions. None: it has messages of its own.
    pub(super) stream: Option<(&'static str, usize)>,
    /// Its argument, and the rate that it says.
    rate: (&'static str, &'static str),
    per_ms: (u64, u64),
    pub(super) burst: u64,
    /// Whether it lets in at its rate, and lets out without one.
    pub(super) lets_in: bool,
    /// So many of a hundred messages are given back.
    pub(super) given_back: u64,
    /// Messages that a consumer may hold of the queue, or of each partition.
    pub(super) prefetch: u32,
    /// One consumer is active for all partitions.
    pub(super) is_single: bool,
}

pub(super) const CONSUMERS: usize = 3;
pub(super) const PUBLISHERS: usize = 2;

/// A burst that is large against the rate shows leaders that begin with one; a small one shows all else.
pub(super) const PLANS: [Plan; 6] = [
    Plan {
        name: "slow",
        stream: None,
        rate: ("x-dequeue-rate", "40/s"),
        per_ms: (40, 1_000),
        burst: 150,
        lets_in: false,
        given_back: 20,
        prefetch: 8,
        is_single: false,
    },
    Plan {
        name: "strict",
        stream: None,
        rate: ("x-dequeue-rate", "6000/m"),
        per_ms: (6_000, 60_000),
        burst: 5,
        lets_in: false,
        given_back: 60,
        prefetch: 8,
        is_single: false,
    },
    Plan {
        name: "let-in",
        stream: None,
        rate: ("x-enqueue-rate", "50/s"),
        per_ms: (50, 1_000),
        // A tenth of a second's.
        burst: 5,
        lets_in: true,
        given_back: 0,
        prefetch: 8,
        is_single: false,
    },
    Plan {
        name: "spread",
        stream: Some(("spread-stream", 3)),
        rate: ("x-dequeue-rate", "40/s"),
        per_ms: (40, 1_000),
        burst: 150,
        lets_in: false,
        given_back: 20,
        prefetch: 4,
        is_single: false,
    },
    Plan {
        name: "spread-strict",
        stream: Some(("spread-strict-stream", 3)),
        rate: ("x-dequeue-rate", "6000/m"),
        per_ms: (6_000, 60_000),
        // What partitions may use late, 80 ms' worth, is taken off a burst: one token is left.
        burst: 9,
        lets_in: false,
        given_back: 40,
        prefetch: 4,
        is_single: false,
    },
    Plan {
        name: "spread-single",
        stream: Some(("spread-single-stream", 3)),
        rate: ("x-dequeue-rate", "60/s"),
        per_ms: (60, 1_000),
        burst: 20,
        lets_in: false,
        given_back: 20,
        prefetch: 4,
        is_single: true,
    },
];

impl Plan {
    pub(super) fn partitions(&self) -> usize {
        self.stream.map_or(1, |(_, partitions)| partitions)
    }

    /// Where messages for it are stored.
    pub(super) fn store(&self) -> &'static str {
        self.stream.map_or(self.name, |(stream, _)| stream)
    }

    /// What is to be declared, in this order.
    pub(super) fn declared(&self) -> impl Iterator<Item = (&'static str, Arguments)> {
        let text = |text: &str| Value::LongStr(text.as_bytes().to_vec());
        let (name, rate) = self.rate;
        let mut own = Arguments::new().with(name, text(rate));
        if !self.lets_in {
            own = own.with("x-dequeue-burst", Value::I64(self.burst as i64));
        }
        let stream = self.stream.map(|(stream, partitions)| {
            let arguments = Arguments::new().with("x-queue-type", text("stream"));
            (stream, arguments.with("x-partitions", Value::I64(partitions as i64)))
        });
        if let Some((stream, _)) = self.stream {
            own = own
                .with("x-queue-type", text("subscription"))
                .with("x-stream", text(stream))
                .with("x-stream-offset", text("first"));
            if self.is_single {
                own = own.with("x-single-active-consumer", Value::Bool(true));
            }
        }
        stream.into_iter().chain([(self.name, own)])
    }

    /// What leaders have sent and nobody has is at most what all may hold, of two leaders in a row; or a question of each
    /// publisher to either.
    pub(super) fn meter(&self) -> Meter {
        let all_hold = (CONSUMERS * self.partitions()) as u64 * u64::from(self.prefetch);
        let on_its_way = if self.lets_in { PUBLISHERS as u64 * self.burst } else { all_hold };
        Meter::new(self.name, self.per_ms, self.burst + 2 * on_its_way)
    }
}
