//! Load from clients that are not ours: what is published where, and who takes it.
//!
//! Here is what needs no socket: the plan, the queues, the messages. [`io`] drives lapin (and a
//! script for pika) by it and writes down what those clients saw. A body is a function of its
//! message's id, so a retry sends the same bytes, and a checksum tells whether they came through.

pub mod io;
pub mod special;

use crate::history::What;
use special::Special;

/// A sequence of numbers that a seed decides (splitmix64).
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A chance of its own for each name, so that one more consumer does not change the others.
    pub fn named(seed: u64, name: &str) -> Self {
        Self(seed ^ u64::from(crc32(name.as_bytes())).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `low..high`; `low` where there is none.
    pub fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.number() % high.saturating_sub(low).max(1)
    }

    pub fn percent(&mut self, percent: u64) -> bool {
        self.within(0, 100) < percent
    }
}

const CRC_TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut value = index as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { 0xedb8_8320 ^ (value >> 1) } else { value >> 1 };
            bit += 1;
        }
        table[index] = value;
        index += 1;
    }
    table
};

/// CRC-32 as in zlib, so that every language's standard library has it.
pub fn crc32(bytes: &[u8]) -> u32 {
    let step =
        |crc: u32, byte: &u8| CRC_TABLE[((crc ^ u32::from(*byte)) & 0xff) as usize] ^ (crc >> 8);
    !bytes.iter().fold(!0, step)
}

/// Largest body of the everyday kind, in bytes.
const BODY_BYTES: u64 = 2_000;
/// Largest body of the rare kind: more than one frame.
const BODY_BYTES_LARGE: u64 = 300_000;

/// The body of message `id`: its id, a line feed, and bytes that the id decides.
pub fn body(id: &str) -> Vec<u8> {
    let mut chance = Chance::named(1, id);
    let high = if chance.within(0, 400) == 0 { BODY_BYTES_LARGE } else { BODY_BYTES };
    let bytes = chance.within(0, high) as usize;
    let mut body = Vec::with_capacity(id.len() + 9 + bytes);
    body.extend_from_slice(id.as_bytes());
    body.push(b'\n');
    let end = body.len() + bytes;
    while body.len() < end {
        body.extend_from_slice(&chance.number().to_le_bytes());
    }
    body.truncate(end);
    body
}

/// What a consumer does with a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Acks each at once.
    AckEach,
    /// Acks many with one `basic.ack`.
    AckMany { count: usize },
    /// Acks most, puts some back, drops a few.
    Mixed { nack_percent: u64, reject_percent: u64 },
}

/// One queue and the consumers on it.
#[derive(Clone, Debug)]
pub struct QueuePlan {
    pub name: &'static str,
    /// Consumers while there is load; 0 is a backlog that the drain takes.
    pub consumers: usize,
    pub prefetch: u16,
    pub manner: Manner,
    /// What its arguments ask for. None: it is plain.
    pub special: Option<Special>,
}

impl QueuePlan {
    /// What consumers of queues with arguments hold at a time.
    pub const PREFETCH_SPECIAL: u16 = 20;

    pub fn plain(name: &'static str, consumers: usize, prefetch: u16, manner: Manner) -> Self {
        Self { name, consumers, prefetch, manner, special: None }
    }

    fn special(special: Special) -> Self {
        let Special { name, consumers, back_percent, reject_percent, .. } = special;
        let manner = Manner::Mixed { nack_percent: back_percent, reject_percent };
        Self {
            special: Some(special),
            ..Self::plain(name, consumers, Self::PREFETCH_SPECIAL, manner)
        }
    }
}

/// One channel of a publisher.
#[derive(Clone, Debug)]
pub struct ChannelPlan {
    pub exchange: &'static str,
    pub key: &'static str,
    /// The queues that get it.
    pub queues: Vec<&'static str>,
    /// Whether what has no known outcome is published again.
    pub retries: bool,
    /// The queue with arguments that it is for.
    pub special: Option<Special>,
}

/// The whole load.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    /// `x-queue-type` of every queue, where one is asked for.
    pub queue_type: Option<String>,
    pub queues: Vec<QueuePlan>,
    /// Streams of [`special::PARTITIONS`] partitions, which some of the queues read.
    pub streams: Vec<&'static str>,
    /// One connection each, with its channels.
    pub publishers: Vec<Vec<ChannelPlan>>,
    /// Unconfirmed publishes per channel.
    pub window: usize,
    /// Publishes per second and channel.
    pub rate: u64,
}

/// Enough queues that every group has some.
const SPREAD: [&str; 24] = [
    "q-00", "q-01", "q-02", "q-03", "q-04", "q-05", "q-06", "q-07", "q-08", "q-09", "q-10", "q-11",
    "q-12", "q-13", "q-14", "q-15", "q-16", "q-17", "q-18", "q-19", "q-20", "q-21", "q-22", "q-23",
];

pub const FANOUT: &str = "trials.fan";

impl Plan {
    /// An order-keeping queue, a shared one with returns, a fan-out to two, and a backlog.
    pub fn everyday(seed: u64) -> Self {
        let queue =
            |name, consumers, prefetch, manner| QueuePlan::plain(name, consumers, prefetch, manner);
        let channel = |exchange, key, queues: &[&'static str]| ChannelPlan {
            exchange,
            key,
            queues: queues.to_vec(),
            retries: false,
            special: None,
        };
        let orders = channel("", "orders", &["orders"]);
        let work = channel("", "work", &["work"]);
        let fan = channel(FANOUT, "", &["fan-a", "fan-b"]);
        let cold = channel("", "cold", &["cold"]);
        let again = |channel: &ChannelPlan| ChannelPlan { retries: true, ..channel.clone() };
        Self {
            seed,
            queue_type: None,
            streams: Vec::new(),
            queues: vec![
                queue("orders", 1, 100, Manner::AckEach),
                queue("work", 3, 50, Manner::Mixed { nack_percent: 5, reject_percent: 2 }),
                queue("fan-a", 1, 200, Manner::AckMany { count: 64 }),
                queue("fan-b", 1, 10, Manner::AckEach),
                queue("cold", 0, 500, Manner::AckMany { count: 100 }),
            ],
            publishers: vec![
                vec![orders.clone(), work.clone(), fan.clone()],
                vec![again(&orders), again(&work), again(&fan), cold],
            ],
            window: 64,
            rate: 300,
        }
    }

    /// Queues with arguments as well, as the seed draws them, and a connection that publishes to them.
    pub fn with_specials(mut self) -> Self {
        let specials = special::draw(self.seed);
        let channel = |special: &Special| ChannelPlan {
            exchange: "",
            key: special.name,
            queues: vec![special.name],
            // The second attempt would have the same key as the first.
            retries: false,
            special: Some(special.clone()),
        };
        self.publishers.push(specials.iter().map(channel).collect());
        self.queues.extend(specials.into_iter().map(QueuePlan::special));
        self
    }

    /// Queues for what operators do, as well, and a connection that publishes to some of them.
    pub fn with_operations(mut self) -> Self {
        let operated = special::operated();
        let channel = |special: &Special| ChannelPlan {
            exchange: "",
            key: special.name,
            queues: vec![special.name],
            retries: false,
            special: Some(special.clone()),
        };
        self.publishers.push(operated[..special::OPERATED_FED].iter().map(channel).collect());
        self.queues.extend(operated.into_iter().map(QueuePlan::special));
        self
    }

    /// A stream of several partitions with subscriptions, and a queue, which keep the order of each key; a subscription
    /// with a rate; and a connection that publishes to stream and queue.
    pub fn with_keys(mut self) -> Self {
        let [shared, single, ordered] = special::keyed();
        let keyed = [shared, single, ordered, special::rated()];
        let of_stream = keyed.iter().filter(|special| special.reads.is_some());
        let stream = ChannelPlan {
            exchange: "",
            key: special::EVENTS,
            queues: of_stream.map(|special| special.name).collect(),
            retries: false,
            special: keyed.first().cloned(),
        };
        let queues = keyed.iter().filter(|special| special.reads.is_none());
        let channels = queues.map(|special| ChannelPlan {
            exchange: "",
            key: special.name,
            queues: vec![special.name],
            retries: false,
            special: Some(special.clone()),
        });
        self.publishers.push([stream].into_iter().chain(channels).collect());
        self.streams.push(special::EVENTS);
        self.queues.extend(keyed.into_iter().map(QueuePlan::special));
        self
    }

    /// The same for a cluster: a publisher and a consumer more, so that every node has some of each.
    pub fn everywhere(seed: u64) -> Self {
        let mut plan = Self::everyday(seed);
        let third = plan.publishers[0].clone();
        plan.publishers.push(third);
        plan.window = 128;
        plan
    }

    /// Plain queues in every group, half of them without a consumer, and a fan-out over two of them.
    pub fn spread(seed: u64) -> Self {
        let mut plan = Self::everyday(seed);
        let ours = |queue: &QueuePlan| queue.name.starts_with("fan-");
        plan.queues.retain(ours);
        let fan = |channel: &ChannelPlan| channel.exchange == FANOUT;
        plan.publishers.iter_mut().for_each(|channels| channels.retain(fan));
        plan.publishers.extend([Vec::new(), Vec::new()]);
        for (index, name) in SPREAD.into_iter().enumerate() {
            let (key, queues, special) = (name, vec![name], None);
            let retries = index % 3 == 0;
            let channel = ChannelPlan { exchange: "", key, queues, retries, special };
            plan.publishers[index % 4].push(channel);
            plan.queues.push(QueuePlan::plain(name, index % 2, 50, Manner::AckEach));
        }
        (plan.window, plan.rate) = (32, 60);
        plan
    }

    /// What the checker has to know of the queues.
    pub fn queue_facts(&self) -> impl Iterator<Item = What> + '_ {
        self.queues.iter().flat_map(|queue| {
            let q = queue.name.to_owned();
            let special = queue.special.as_ref();
            // The backlog's consumers come one after the other, when it is drained.
            let single = queue.consumers <= 1 && special.is_none();
            let dead = special.and_then(|special| special.dead).map(str::to_owned);
            let traits = special
                .map(|special| What::Traits { q: q.clone(), traits: special.traits.clone() });
            [What::Queue { q, single, dead }].into_iter().chain(traits)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_zlibs() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b""), 0);
    }

    #[test]
    fn a_body_depends_on_its_id_alone_and_begins_with_it() {
        assert_eq!(body("pub-1.0.1:5"), body("pub-1.0.1:5"));
        assert_ne!(body("pub-1.0.1:5"), body("pub-1.0.1:6"));
        assert!(body("pub-1.0.1:5").starts_with(b"pub-1.0.1:5\n"));
        let largest = (0..2_000).map(|seq| body(&format!("a:{seq}")).len()).max();
        assert!(largest > Some(131_072), "some bodies must not fit into one frame: {largest:?}");
    }

    #[test]
    fn every_queue_of_the_everyday_plan_gets_messages() {
        let plan = Plan::everyday(1);
        for queue in &plan.queues {
            let feeds = |channel: &ChannelPlan| channel.queues.contains(&queue.name);
            assert!(plan.publishers.iter().flatten().any(feeds), "{} gets nothing", queue.name);
        }
    }
}
