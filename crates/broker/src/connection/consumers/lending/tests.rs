//! One prefetch over partitions that have something at times, with the partitions and the client played by the test.

use std::collections::VecDeque;

use machine::{GroupId, Partition, QueueId};

use super::super::{ChannelRoom, Consumers};
use crate::connection::tickets::ChannelRef;

const CHANNEL: ChannelRef = ChannelRef { number: 1, life: 1 };
const FREE: ChannelRoom = ChannelRoom { prefetch: 0, consumed: 0, unacked: 0 };

/// What a partition has, and may send.
#[derive(Default)]
struct Part {
    ready: VecDeque<u32>,
    credit: u32,
    published: u32,
    got: Vec<u32>,
    /// Messages on their way to the session, in the order in which they were sent.
    on_way: VecDeque<Vec<u32>>,
}

struct World {
    consumers: Consumers,
    lead: u64,
    parts: Vec<Part>,
    limit: u32,
    held: Vec<usize>,
    given_back: usize,
    chance: u64,
}

impl World {
    fn new(count: u16, limit: u32, seed: u64) -> Self {
        let mut consumers = Consumers::default();
        let partition = |index: u16| {
            let queue = QueueId(u64::from(index) + 7);
            (Partition::plain(queue, GroupId(u32::from(index) + 1)), index)
        };
        let partitions: Vec<_> = (0..count).map(partition).collect();
        let lead = consumers.add_partitions(CHANNEL, "a", &partitions, false, limit);
        consumers.attached(lead);
        let parts = (0..count).map(|_| Part::default()).collect();
        Self { consumers, lead, parts, limit, held: Vec::new(), given_back: 0, chance: seed }
    }

    fn draw(&mut self, below: usize) -> usize {
        self.chance = self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.chance >> 33) as usize % below
    }

    fn grant(&mut self) {
        let (parts, lead) = (&mut self.parts, self.lead);
        self.consumers.grant(
            |_| Some(FREE),
            |source, credit| parts[(source.consumer - lead) as usize].credit += credit,
        );
    }

    fn publish(&mut self, part: usize) {
        let part = &mut self.parts[part];
        part.ready.push_back(part.published);
        part.published += 1;
    }

    /// A partition sends what it may.
    fn send(&mut self, part: usize) {
        let part = &mut self.parts[part];
        let count = (part.credit as usize).min(part.ready.len());
        if count > 0 {
            part.credit -= count as u32;
            part.on_way.push_back(part.ready.drain(..count).collect());
        }
    }

    /// The session takes a delivery: what is too much goes back.
    fn take(&mut self, index: usize) {
        let number = self.lead + index as u64;
        let Some(sent) = self.parts[index].on_way.pop_front() else { return };
        let consumer = self.consumers.find(number).expect("it is there");
        let room = if consumer.is_returning() { 0 } else { self.consumers.room_of(consumer) };
        let taken = sent.len().min(room as usize);
        self.consumers.delivered(number, sent.len() as u32, taken as u32, 100);
        let part = &mut self.parts[index];
        part.got.extend(&sent[..taken]);
        for message in sent[taken..].iter().rev() {
            part.ready.push_front(*message);
        }
        // The partition has them back at their places before anything that was behind them.
        part.ready.make_contiguous().sort_unstable();
        self.given_back += sent.len() - taken;
        self.held.extend(std::iter::repeat_n(index, taken));
        assert!(self.held.len() <= self.limit as usize, "the client holds more than its prefetch");
        assert!(part.got.is_sorted(), "a message overtakes another of its partition");
    }

    fn ack(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let place = self.draw(self.held.len());
        let index = self.held.swap_remove(place);
        self.consumers.settled(self.lead + index as u64, 1, machine::Outcome::Done);
    }

    /// Nothing more comes: all that there is arrives.
    fn drain(&mut self) {
        for _ in 0..10_000 {
            for part in 0..self.parts.len() {
                self.send(part);
                self.take(part);
            }
            self.ack();
            self.grant();
        }
        for part in &self.parts {
            assert_eq!(part.got.len() as u32, part.published, "a message never comes");
        }
    }
}

#[test]
fn a_prefetch_is_kept_and_nothing_starves_or_overtakes() {
    for seed in 0..60 {
        let limit = [1, 2, 3, 5, 16, 100][seed as usize % 6];
        let mut world = World::new([2, 4, 7][seed as usize % 3], limit, seed);
        world.grant();
        let parts = world.parts.len();
        for _ in 0..2_000 {
            let part = world.draw(parts);
            match world.draw(5) {
                0 => world.publish(part),
                1 => world.send(part),
                2 => world.take(part),
                3 => world.ack(),
                _ => world.grant(),
            }
        }
        world.drain();
    }
}

#[test]
fn one_busy_partition_gets_what_idle_ones_do_not_use() {
    let mut world = World::new(4, 100, 1);
    world.grant();
    let first: u32 = world.parts.iter().map(|part| part.credit).sum();
    assert_eq!(first, 100, "no more is lent at first than there is");
    let mut most = 0;
    for _ in 0..400 {
        (0..20).for_each(|_| world.publish(2));
        world.send(2);
        world.take(2);
        while !world.held.is_empty() {
            world.ack();
        }
        world.grant();
        most = most.max(world.parts[2].credit);
    }
    assert!(most > 90, "a busy partition may send {most} of 100");
    assert_eq!(world.given_back, 0, "nobody else sent anything");
}

#[test]
fn partitions_that_are_all_busy_hardly_send_too_much() {
    let mut world = World::new(4, 100, 1);
    world.grant();
    for _ in 0..1_000 {
        for part in 0..4 {
            (0..10).for_each(|_| world.publish(part));
            world.send(part);
            world.take(part);
        }
        (0..40).for_each(|_| world.ack());
        world.grant();
    }
    let got: usize = world.parts.iter().map(|part| part.got.len()).sum();
    assert!(world.given_back * 100 < got, "{} of {got} went back", world.given_back);
}
