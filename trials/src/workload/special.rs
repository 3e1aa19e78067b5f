//! Queues with arguments, as a seed draws them, and what messages for them say of themselves. The
//! simulator and the trials of real processes use the same.

use super::Chance;
use crate::history::{Marks, Traits};

/// A queue with arguments.
#[derive(Clone, Debug)]
pub struct Special {
    pub name: &'static str,
    /// Consumers while there is load; 0 is a backlog.
    pub consumers: usize,
    pub traits: Traits,
    /// Where its dead letters go.
    pub dead: Option<&'static str>,
    /// The stream that it reads, if it is a subscription.
    pub reads: Option<&'static str>,
    /// How many of its messages are marked, in percent.
    marked: Marked,
    /// Consumers give back and refuse so many of a hundred.
    pub back_percent: u64,
    pub reject_percent: u64,
}

/// How many of a hundred messages have a time to live of their own, a delay, a key.
#[derive(Clone, Copy, Debug, Default)]
struct Marked {
    ttl: u64,
    delay: u64,
    key: u64,
}

/// The value of an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Argument {
    Number(i64),
    Text(String),
    Truth(bool),
}

/// Where most dead letters go, and may die again.
pub const CHAIN: &str = "chain";
/// Where every way ends.
pub const DEAD: &str = "dead";
/// A queue whose messages are often refused, and where they go then: nobody consumes that but for the drain.
pub const FAILS: &str = "fails";
pub const LIMBO: &str = "limbo";
/// For trials of what operators do: what soon expires, where it lies then, and where it is sent on to.
pub const BRIEF: &str = "brief";
pub const BRIEF_DEAD: &str = "brief-dead";
pub const AGAIN: &str = "again";
/// What consumers often refuse: a policy says where that goes.
pub const REFUSED: &str = "refused";
/// Where a second user publishes to.
pub const OTHERS: &str = "others";
/// A stream of several partitions, and how many.
pub const EVENTS: &str = "events";
pub const PARTITIONS: i64 = 4;
/// Keys that messages share.
const KEYS: u64 = 30;
/// No message waits longer than this for its delay, nor one that came back, in milliseconds.
pub const WAIT_MS_MAX: u64 = 3_000;

/// The queues with arguments of a run with this seed.
pub fn draw(seed: u64) -> Vec<Special> {
    let chance = &mut Chance::named(seed, "queues");
    let all: [fn(&mut Chance) -> Special; 6] = [ttl, later, once, ranks, short, often];
    let mut drawn = Vec::new();
    for make in all {
        let mut special = make(chance);
        spice(&mut special, chance);
        if chance.percent(60) {
            drawn.push(special);
        }
    }
    let chain = Special { name: CHAIN, marked: Marked::default(), dead: Some(DEAD), ..ttl(chance) };
    let dead = Special { back_percent: 5, ..special(DEAD, 1, Traits::default()) };
    drawn.extend([chain, dead]);
    drawn
}

/// What is refused again and again, and where it lies until somebody sends it on.
pub fn retried() -> [Special; 2] {
    let fails = Special {
        dead: Some(LIMBO),
        back_percent: 10,
        reject_percent: 40,
        ..special(FAILS, 2, Traits::default())
    };
    [fails, special(LIMBO, 0, Traits::default())]
}

/// The queues of trials of what operators do, those first that publishers of the load send to.
pub fn operated() -> [Special; 5] {
    let none = Traits::default;
    let brief = Traits { ttl_ms: Some(200), ..none() };
    [
        Special { dead: Some(BRIEF_DEAD), ..special(BRIEF, 0, brief) },
        Special { back_percent: 5, reject_percent: 20, ..special(REFUSED, 1, none()) },
        special(BRIEF_DEAD, 0, none()),
        special(AGAIN, 1, none()),
        special(OTHERS, 1, none()),
    ]
}

/// How many of them publishers of the load send to.
pub const OPERATED_FED: usize = 2;

/// What keeps the order of a key: two subscriptions of one stream, one of them with several consumers, and a queue. What
/// a consumer gives back holds up its key.
pub fn keyed() -> [Special; 3] {
    let keyed = |name, consumers, reads: Option<&'static str>, in_turn| {
        let traits = Traits { keyed: true, in_turn, ..Traits::default() };
        let marked = Marked { key: 90, ..Marked::default() };
        let (back_percent, reject_percent) = if in_turn { (10, 3) } else { (0, 0) };
        Special { reads, marked, back_percent, reject_percent, ..special(name, consumers, traits) }
    };
    [
        keyed("events-shared", 3, Some(EVENTS), true),
        keyed("events-single", 1, Some(EVENTS), false),
        keyed("ordered", 3, None, true),
    ]
}

/// Deliveries in a second of a subscription whose partitions share one rate: fewer than come in, so that the rate is what
/// holds them back, and not so few that the rest takes long to drain.
const RATE: u64 = 80;

/// A subscription of the same stream with a rate for all partitions together.
pub fn rated() -> Special {
    let traits = Traits { rate: Some(RATE), ..Traits::default() };
    Special { reads: Some(EVENTS), back_percent: 10, ..special("events-rated", 2, traits) }
}

fn special(name: &'static str, consumers: usize, traits: Traits) -> Special {
    let (dead, reads, marked) = (None, None, Marked::default());
    let (back_percent, reject_percent) = (0, 0);
    Special { name, consumers, traits, dead, reads, marked, back_percent, reject_percent }
}

/// What waits too long for a consumer.
fn ttl(chance: &mut Chance) -> Special {
    let traits = Traits { ttl_ms: Some(chance.within(100, 2_000)), ..Traits::default() };
    let consumers = chance.within(0, 2) as usize;
    let dead = chance.percent(75).then_some(CHAIN);
    let marked = Marked { ttl: 30, delay: 10, key: 0 };
    Special { dead, marked, reject_percent: 10, ..special("ttl", consumers, traits) }
}

fn later(chance: &mut Chance) -> Special {
    let consumers = chance.within(1, 3) as usize;
    let marked = Marked { delay: 70, ..Marked::default() };
    Special { marked, ..special("later", consumers, Traits::default()) }
}

fn once(chance: &mut Chance) -> Special {
    let traits = Traits { dedup_ms: Some(chance.within(300, 4_000)), ..Traits::default() };
    let marked = Marked { ttl: 0, delay: 10, key: 80 };
    Special { marked, ..special("once", 1, traits) }
}

/// Half of the time it fills up before anybody consumes.
fn ranks(chance: &mut Chance) -> Special {
    let traits = Traits { max_priority: chance.within(1, 10) as u8, ..Traits::default() };
    special("ranks", 2 * chance.within(0, 2) as usize, traits)
}

fn short(chance: &mut Chance) -> Special {
    let (max_length, refuses) = (Some(chance.within(3, 40)), chance.percent(40));
    let dead = chance.percent(60).then_some(CHAIN);
    let traits = Traits { max_length, refuses, ..Traits::default() };
    Special { dead, ..special("short", 1, traits) }
}

/// What comes back again and again.
fn often(chance: &mut Chance) -> Special {
    let delivery_limit = Some(chance.within(0, 4) as u32);
    let retry_ms = chance.percent(50).then(|| chance.within(50, WAIT_MS_MAX / 4));
    let traits = Traits { delivery_limit, retry_ms, ..Traits::default() };
    let (dead, back_percent, reject_percent) = (Some(DEAD), 40, 5);
    Special { dead, back_percent, reject_percent, ..special("often", 2, traits) }
}

/// What one argument does must go together with what another does.
fn spice(special: &mut Special, chance: &mut Chance) {
    let Special { traits, marked, dead, .. } = special;
    if chance.percent(20) && traits.ttl_ms.is_none() {
        traits.ttl_ms = Some(chance.within(500, 4_000));
    }
    if chance.percent(15) && traits.max_length.is_none() {
        traits.max_length = Some(chance.within(20, 200));
    }
    // A queue with a delivery limit is a quorum queue, and those know no priorities.
    if chance.percent(20) && traits.delivery_limit.is_none() && traits.max_priority == 0 {
        traits.max_priority = chance.within(1, 4) as u8;
    }
    if chance.percent(20) && traits.dedup_ms.is_none() {
        traits.dedup_ms = Some(chance.within(300, 2_000));
        marked.key = marked.key.max(30);
    }
    if chance.percent(40) && dead.is_none() {
        *dead = Some(CHAIN);
    }
    if chance.percent(30) {
        marked.ttl = marked.ttl.max(20);
    }
    if chance.percent(30) {
        marked.delay = marked.delay.max(20);
    }
}

impl Special {
    /// How the queue is declared.
    pub fn arguments(&self) -> Vec<(&'static str, Argument)> {
        let number = |number: u64| Argument::Number(number.try_into().unwrap_or(i64::MAX));
        let text = |text: &str| Argument::Text(text.to_owned());
        let Traits { ttl_ms, max_length, refuses, max_priority, .. } = self.traits;
        let Traits { delivery_limit, retry_ms, dedup_ms, .. } = self.traits;
        let mut arguments = Vec::new();
        arguments.extend(ttl_ms.map(|ms| ("x-message-ttl", number(ms))));
        if let Some(length) = max_length {
            arguments.push(("x-max-length", number(length)));
            let overflow = if refuses { "reject-publish" } else { "drop-head" };
            arguments.push(("x-overflow", text(overflow)));
        }
        if max_priority > 0 {
            arguments.push(("x-max-priority", number(max_priority.into())));
        }
        if let Some(limit) = delivery_limit {
            arguments.push(("x-queue-type", text("quorum")));
            arguments.push(("x-delivery-limit", number(limit.into())));
        }
        if let Some(ms) = retry_ms {
            arguments.push(("x-delayed-retry-type", text("all")));
            arguments.push(("x-delayed-retry-min", number(ms)));
            arguments.push(("x-delayed-retry-max", number(2 * ms)));
        }
        if let Some(ms) = dedup_ms {
            arguments.push(("x-message-deduplication", Argument::Truth(true)));
            arguments.push(("x-cache-ttl", number(ms)));
        }
        if let Some(stream) = self.reads {
            arguments.push(("x-queue-type", text("subscription")));
            arguments.push(("x-stream", text(stream)));
            arguments.push(("x-stream-offset", text("first")));
        }
        if self.traits.in_turn {
            arguments.push(("x-order", text("key")));
        }
        if let Some(rate) = self.traits.rate {
            arguments.push(("x-dequeue-rate", text(&format!("{rate}/s"))));
        }
        if let Some(dead) = self.dead {
            arguments.push(("x-dead-letter-exchange", text("")));
            arguments.push(("x-dead-letter-routing-key", text(dead)));
        }
        arguments
    }

    /// The header in which a message says its key.
    pub fn key_header(&self) -> &'static str {
        if self.traits.keyed { "x-partition-key" } else { "x-deduplication-header" }
    }

    /// What the next message says of itself.
    pub fn marks(&self, chance: &mut Chance) -> Marks {
        let Marked { ttl, delay, key } = self.marked;
        let highest = u64::from(self.traits.max_priority);
        Marks {
            ttl_ms: chance.percent(ttl).then(|| chance.within(50, 3_000)),
            delay_ms: chance.percent(delay).then(|| chance.within(1, WAIT_MS_MAX)),
            key: chance.percent(key).then(|| chance.within(0, KEYS)),
            // Some name one that is higher than the highest.
            priority: if highest > 0 { chance.within(0, highest + 3) as u8 } else { 0 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_of_dead_letters_ends() {
        for seed in 0..200 {
            let all = draw(seed);
            for special in &all {
                let (mut at, mut steps) = (special.dead, 0);
                while let Some(name) = at {
                    let next = all.iter().find(|one| one.name == name);
                    at = next.expect("dead letters go to a queue of the run").dead;
                    steps += 1;
                    assert!(steps < 4, "seed {seed}: {} goes round", special.name);
                }
            }
        }
    }

    #[test]
    fn seeds_differ_and_together_use_every_argument() {
        let all: Vec<Special> = (0..60).flat_map(draw).collect();
        let used = |name: &str| {
            all.iter()
                .flat_map(Special::arguments)
                .filter(|(argument, _)| *argument == name)
                .count()
        };
        for name in [
            "x-message-ttl",
            "x-max-length",
            "x-max-priority",
            "x-delivery-limit",
            "x-delayed-retry-type",
            "x-message-deduplication",
            "x-dead-letter-exchange",
        ] {
            assert!(used(name) > 5, "{name} is hardly used");
        }
    }
}
