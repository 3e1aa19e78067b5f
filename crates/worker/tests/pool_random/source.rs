//! A source: its jobs, and those that it has given out.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;
use worker::limits::DELIVERIES_MAX;
use worker::{Extras, Job, Message, Receipt};

use super::settings::Random;

/// A source that gives the same job out so often has met a bug.
const DELIVERIES: u32 = 500;

/// A job at its source.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub(crate) id: usize,
    pub(crate) attempt: u32,
    pub(crate) body: Bytes,
    pub(crate) due: Instant,
}

/// What never changes of a job.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub(crate) key: Option<u64>,
    pub(crate) group: Option<u64>,
    pub(crate) extras: Option<Box<Extras>>,
    pub(crate) deliveries: u32,
    pub(crate) is_over: bool,
}

#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) lease: Option<Duration>,
    pub(crate) queue: VecDeque<Waiting>,
    pub(crate) out: BTreeMap<Receipt, Waiting>,
    pub(crate) leases: BTreeMap<Receipt, Instant>,
    pub(crate) room: usize,
    pub(crate) receipts: u64,
    pub(crate) specs: Vec<Spec>,
}

/// A source with some jobs.
pub(crate) fn source(random: &mut Random, now: Instant) -> Source {
    let count = 1 + random.below(120) as usize;
    let keys = 1 + random.below(12);
    let mut specs = Vec::new();
    let mut queue = VecDeque::new();
    for id in 0..count {
        let extras = random.percent(10).then(|| {
            Box::new(Extras {
                timeout: random.percent(50).then(|| Duration::from_millis(1 + random.below(5000))),
                attempts_max: random.percent(50).then(|| 1 + random.below(4) as u32),
                ..Extras::default()
            })
        });
        specs.push(Spec {
            key: random.percent(80).then(|| random.below(keys)),
            group: random.percent(70).then(|| random.below(3)),
            extras,
            deliveries: 0,
            is_over: false,
        });
        let attempt = if random.percent(1) { 25 } else { 1 };
        let body = Bytes::from(vec![b'x'; random.below(300) as usize]);
        let due = now + random.time(Duration::from_secs(20));
        queue.push_back(Waiting { id, attempt, body, due });
    }
    Source {
        lease: random.percent(50).then(|| Duration::from_secs(1 + random.below(30))),
        queue,
        out: BTreeMap::new(),
        leases: BTreeMap::new(),
        room: 0,
        receipts: 0,
        specs,
    }
}

impl Source {
    pub(crate) fn give_out(&mut self, waiting: Waiting, now: Instant) -> Job {
        self.receipts += 1;
        let receipt = Receipt(self.receipts);
        let spec = &mut self.specs[waiting.id];
        spec.deliveries += 1;
        assert!(spec.deliveries < DELIVERIES, "a job comes and goes for ever");
        let lease_until = self.lease.map(|lease| now + lease);
        if let Some(until) = lease_until {
            self.leases.insert(receipt, until);
        }
        let message = Message {
            id: waiting.id.to_string(),
            // The receipt, so that the checker can tell two deliveries from each other.
            kind: receipt.0.to_string(),
            body: waiting.body.clone(),
            // A source that counts what came out goes on counting, up to where it is dead.
            attempt: waiting.attempt.min(DELIVERIES_MAX + 5),
            extras: spec.extras.clone(),
            ..Message::default()
        };
        let (key, group) = (spec.key, spec.group);
        self.out.insert(receipt, waiting);
        Job { receipt, message, key, group, lease_until, published_ms: None }
    }

    pub(crate) fn settle(&mut self, receipts: &[Receipt]) {
        for receipt in receipts {
            self.out.remove(receipt);
            self.leases.remove(receipt);
        }
    }
}
