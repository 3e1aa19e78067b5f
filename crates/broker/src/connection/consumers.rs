//! Consumers of a session: what each may hold, what it holds, and when it is given more credit.
//!
//! Credit is what a consumer's queue may send without asking. A prefetch bounds what is held; without
//! one a window bounds what is on its way, by count and by the size of its messages. Several
//! consumers that share a limit are each given what is free of it: what is then too much is handed
//! back (`deliveries`), so that none starves while another's queue is empty.
//!
//! A consumer of a queue with several partitions is one consumer for each of them, of which the first leads: the prefetch
//! is theirs together (`lending`). Where one consumer is active for all of them, it gets credit once it is elected
//! (`elected`). Where partitions are shared out among consumers, it is found out what each can do (`capacity`).

mod capacity;
mod elected;
mod lending;

use std::collections::BTreeMap;

use machine::limits::PARTITIONS_MAX;
use machine::{ConsumerSpec, Outcome, Partition, QueueId, StreamOffset};

use self::capacity::Capacities;
use self::elected::Elected;
use self::lending::Lending;
use crate::channel::unacked::Source;
use crate::connection::tickets::ChannelRef;
use crate::limits;

/// Bytes of a message of a consumer that has had none.
const MESSAGE_BYTES_GUESSED: u64 = limits::WINDOW_BYTES / limits::WINDOW_MESSAGES_START as u64;

/// One consumer.
///
/// ```text
///   added ──its queue took it──> attached ──cancelled by the client──> detaching ──answered──> removed
///     │                            │  │                                                          ^
///     │ its queue refused it       │  └──its channel ends──> over: deliveries go back ──answered─┤
///     └────────────────────────────┴──its queue is gone──────────────────────────────────────────┘
/// ```
#[derive(Debug)]
pub(crate) struct Consumer {
    pub(crate) channel: ChannelRef,
    /// The consumer tag as on the wire: a length octet and the text.
    pub(crate) tag_wire: Box<[u8]>,
    pub(crate) source: Source,
    pub(crate) no_ack: bool,
    /// Its queue serves one consumer at a time.
    pub(crate) is_single_active: bool,
    /// Its queue serves one for all partitions together: as soon as it has several.
    pub(crate) is_one_of_all: bool,
    /// Its client has cancelled it.
    is_ending: bool,
    /// It reads a stream: what it is done with is credit, and nothing goes back.
    pub(crate) is_reading: bool,
    /// Of several partitions the one that it gets messages of, counted from 0. None: its queue has one.
    pub(crate) partition: Option<u16>,
    /// The consumer of the first partition: itself, if there is no other.
    pub(crate) lead: u64,
    /// As its queue was asked to serve it.
    pub(crate) spec: ConsumerSpec,
    /// An operator has paused it.
    pub(crate) pause: Option<ConsumerPause>,
    /// It wants all partitions that there are: not one that it named.
    pub(crate) takes_all: bool,
    /// What went back of it is not all that was on its way: what is behind goes back as well, so that it comes again
    /// in its order.
    is_returning: bool,
    /// Messages it may hold; 0 is no limit.
    limit: u32,
    held: u32,
    /// Messages sent to it, and those of them that it acked.
    pub(crate) delivered: u64,
    pub(crate) acked: u64,
    /// Credit given and not used.
    granted: u32,
    /// The size of its messages on the wire, averaged; 0 is unknown.
    message_bytes: u64,
    /// Its queue knows of it, and of more credit for it.
    is_attached: bool,
    /// Its channel is gone or its queue is: what still comes for it goes back.
    pub(crate) is_over: bool,
    is_dirty: bool,
}

impl Consumer {
    pub(crate) fn tag(&self) -> &str {
        let text = self.tag_wire.get(1..).unwrap_or_default();
        std::str::from_utf8(text).expect("a tag was decoded as text")
    }

    /// Messages it may hold; 0 is no limit.
    pub(crate) fn limit(&self) -> u32 {
        self.limit
    }

    /// Messages it holds, and messages that its queue may send it and has not.
    pub(crate) fn holds(&self) -> (u32, u32) {
        (self.held, self.granted)
    }

    /// How much more its queue may send now, `room` being what its channel has left.
    fn wanted(&self, room: u32, window_bytes: u64) -> u32 {
        let message_bytes = match self.message_bytes {
            0 => MESSAGE_BYTES_GUESSED,
            bytes => bytes,
        };
        let window = u32::try_from(window_bytes / message_bytes).unwrap_or(u32::MAX);
        let window = window.clamp(1, limits::WINDOW_MESSAGES_MAX);
        if self.no_ack {
            return window;
        }
        let limit = if self.limit == 0 { u32::MAX } else { self.limit.saturating_sub(self.held) };
        window.min(limit).min(room)
    }

    /// What to grant now: nothing while a window is more than half open, for each grant is a request.
    fn grant(&mut self, room: u32, window_bytes: u64) -> u32 {
        let wanted = self.wanted(room, window_bytes);
        let is_window = self.no_ack || self.limit == 0 || wanted >= limits::WINDOW_MESSAGES_WHOLE;
        if wanted <= self.granted || (is_window && self.granted > wanted / 2) {
            return 0;
        }
        let more = wanted - self.granted;
        self.granted = wanted;
        more
    }

    /// Whether what comes for it goes back: see `is_returning`.
    pub(crate) fn is_returning(&self) -> bool {
        self.is_returning
    }

    /// Counts a delivery of which the client gets `taken` messages of `bytes` in all.
    fn delivered(&mut self, count: u32, taken: u32, bytes: u64) {
        self.delivered += u64::from(taken);
        self.granted = self.granted.saturating_sub(count);
        self.is_returning = self.granted > 0 && (self.is_returning || taken < count);
        if !self.no_ack {
            self.held += taken;
        }
        if taken > 0 {
            let average = bytes / u64::from(taken);
            self.message_bytes = match self.message_bytes {
                0 => average,
                before => (3 * before + average) / 4,
            };
        }
    }
}

/// A consumer that an operator has paused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerPause {
    pub by: String,
    /// Since when, milliseconds since 1970.
    pub since_ms: u64,
}

/// The bound that a consumer shares with its channel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChannelRoom {
    /// `basic.qos` with `global`; 0 is no limit.
    pub(crate) prefetch: u32,
    /// Messages out with consumers: those count against the prefetch.
    pub(crate) consumed: u32,
    /// All messages out.
    pub(crate) unacked: u32,
}

impl ChannelRoom {
    /// Messages that `consumer` may still be given on this channel.
    pub(crate) fn of(self, consumer: &Consumer) -> u32 {
        if consumer.no_ack {
            u32::MAX
        } else if self.prefetch > 0 {
            self.prefetch.saturating_sub(self.consumed)
        } else if consumer.limit == 0 {
            limits::UNACKED_MAX.saturating_sub(self.unacked)
        } else {
            u32::MAX
        }
    }
}

/// All consumers of a session, by its own number for them.
#[derive(Debug)]
pub(crate) struct Consumers {
    all: BTreeMap<u64, Consumer>,
    drawn: u64,
    /// Of those with several partitions, by the consumer that leads: what they share.
    lending: BTreeMap<u64, Lending>,
    elected: Elected,
    capacities: Capacities,
    /// Consumers of partitions behind the first.
    followers: u64,
    /// Bytes that each without a prefetch should have on their way now.
    pub(crate) window_bytes: u64,
    /// Those whose credit may have to grow.
    dirty: Vec<u64>,
}

impl Default for Consumers {
    fn default() -> Self {
        let window_bytes = limits::WINDOW_BYTES;
        Self {
            all: BTreeMap::new(),
            drawn: 0,
            lending: BTreeMap::new(),
            elected: Elected::default(),
            capacities: Capacities::default(),
            followers: 0,
            window_bytes,
            dirty: Vec::new(),
        }
    }
}

impl Consumers {
    /// A number for a consumer, or for a channel's fetches.
    pub(crate) fn draw(&mut self) -> u64 {
        self.drawn += 1;
        self.drawn
    }

    /// Adds a consumer and says what credit it starts with.
    pub(crate) fn add(
        &mut self,
        channel: ChannelRef,
        tag: &str,
        source: Source,
        no_ack: bool,
        limit: u32,
        room: ChannelRoom,
    ) -> u32 {
        let mut tag_wire = Vec::with_capacity(tag.len() + 1);
        tag_wire.push(u8::try_from(tag.len()).expect("a tag is a short string"));
        tag_wire.extend_from_slice(tag.as_bytes());
        let mut consumer = Consumer {
            channel,
            tag_wire: tag_wire.into_boxed_slice(),
            source,
            no_ack,
            is_single_active: false,
            is_one_of_all: false,
            is_ending: false,
            is_reading: false,
            partition: None,
            lead: source.consumer,
            spec: ConsumerSpec::default(),
            pause: None,
            takes_all: true,
            is_returning: false,
            limit,
            held: 0,
            delivered: 0,
            acked: 0,
            granted: 0,
            message_bytes: 0,
            is_attached: false,
            is_over: false,
            is_dirty: false,
        };
        let credit = consumer.grant(room.of(&consumer), self.window_bytes);
        // With no room now it hears of room when something is acked.
        self.all.insert(source.consumer, consumer);
        credit
    }

    /// Numbers for the consumers of as many partitions as there can be: those of one consumer are in a row, by which the
    /// leaders of partitions know them. Gives that of partition 0. A consumer of a queue that may get more partitions has
    /// such a number.
    pub(crate) fn draw_row(&mut self) -> u64 {
        let first = self.draw();
        self.drawn += u64::from(PARTITIONS_MAX) - 1;
        first
    }

    /// Adds the consumers of a queue's partitions, which start without credit. Gives the one that leads.
    pub(crate) fn add_partitions(
        &mut self,
        channel: ChannelRef,
        tag: &str,
        partitions: &[(Partition, u16)],
        no_ack: bool,
        limit: u32,
    ) -> u64 {
        let row = self.draw_row();
        let members: Vec<u64> =
            partitions.iter().map(|(_, index)| row + u64::from(*index)).collect();
        let lead = *members.first().expect("a queue has a partition");
        for ((partition, index), number) in partitions.iter().zip(&members) {
            self.add_partition(
                channel,
                (tag, lead),
                (*partition, *index),
                *number,
                (no_ack, limit),
            );
        }
        self.followers += members.len() as u64 - 1;
        self.lending.insert(lead, Lending::new(row, &members));
        lead
    }

    fn add_partition(
        &mut self,
        channel: ChannelRef,
        (tag, lead): (&str, u64),
        (Partition { queue, group, .. }, index): (Partition, u16),
        number: u64,
        (no_ack, limit): (bool, u32),
    ) {
        let full = ChannelRoom { prefetch: 1, consumed: 1, unacked: 0 };
        let source = Source { group, queue, consumer: number };
        _ = self.add(channel, tag, source, no_ack, limit, full);
        if let Some(consumer) = self.all.get_mut(&number) {
            (consumer.lead, consumer.partition, consumer.granted) = (lead, Some(index), 0);
        }
    }

    /// Consumers that want all partitions, of queues that have more now: by `count`, which says how many a queue has.
    pub(crate) fn outgrown(&self, count: impl Fn(QueueId) -> usize) -> Vec<u64> {
        let leads = self.all.values().filter(|it| it.lead == it.source.consumer && it.takes_all);
        let open = leads.filter(|it| it.is_attached && !it.is_over);
        let has = |it: &Consumer| self.lending.get(&it.lead).map_or(1, Lending::count);
        let few = open.filter(|it| has(it) < count(it.source.queue));
        few.map(|consumer| consumer.lead).collect()
    }

    /// Adds consumers of the partitions that a consumer lacks. Gives those, which are to be attached.
    pub(crate) fn grow(&mut self, lead: u64, partitions: &[(Partition, u16)]) -> Vec<u64> {
        let Some(leader) = self.all.get(&lead) else { return Vec::new() };
        let (channel, tag) = (leader.channel, leader.tag().to_owned());
        let (how, spec) = ((leader.no_ack, leader.limit), leader.spec);
        let (is_single_active, is_reading) = (leader.is_single_active, leader.is_reading);
        let is_one_of_all = leader.is_one_of_all;
        let held = leader.held;
        self.lending.entry(lead).or_insert_with(|| Lending::of_one(lead, lead, held));
        if let Some(leader) = self.all.get_mut(&lead) {
            leader.partition.get_or_insert(0);
        }
        let row = self.lending.get(&lead).map_or(lead, Lending::row);
        let has: Vec<Option<u16>> =
            self.members(lead).iter().filter_map(|it| Some(self.all.get(it)?.partition)).collect();
        let mut added = Vec::new();
        for (partition, index) in
            partitions.iter().filter(|(_, index)| !has.contains(&Some(*index)))
        {
            let number = row + u64::from(*index);
            self.add_partition(channel, (&tag, lead), (*partition, *index), number, how);
            if let Some(consumer) = self.all.get_mut(&number) {
                // All that it has came since.
                let start = spec.start.map(|_| StreamOffset::First);
                consumer.spec = ConsumerSpec { credit: 0, start, ..spec };
                consumer.is_single_active = is_single_active;
                consumer.is_one_of_all = is_one_of_all;
                consumer.is_reading = is_reading;
            }
            self.followers += 1;
            added.push(number);
        }
        if let Some(lending) = self.lending.get_mut(&lead) {
            lending.add(&added);
        }
        added
    }

    /// A partition that was added later serves it, or does not.
    pub(crate) fn grown(&mut self, number: u64, is_attached: bool) {
        let Some(consumer) = self.all.get_mut(&number) else { return };
        let lead = consumer.lead;
        consumer.is_attached = is_attached;
        if is_attached {
            return self.mark(lead);
        }
        self.all.remove(&number);
        self.followers -= 1;
        if let Some(lending) = self.lending.get_mut(&lead) {
            lending.remove(number);
        }
    }

    /// Those of all partitions of a consumer that leads; itself, if there is no other.
    pub(crate) fn members(&self, lead: u64) -> Vec<u64> {
        self.lending.get(&lead).map_or_else(|| vec![lead], Lending::numbers)
    }

    /// Its queue has it, with all partitions. Credit that came free while it was asked is given now.
    pub(crate) fn attached(&mut self, number: u64) {
        for member in self.members(number) {
            if let Some(consumer) = self.all.get_mut(&member) {
                consumer.is_attached = true;
            }
        }
        self.tell_from_now_on(number);
        self.mark(number);
    }

    /// Counts a delivery of which the client gets `taken` messages of `bytes` in all.
    pub(crate) fn delivered(&mut self, number: u64, count: u32, taken: u32, bytes: u64) {
        let Some(consumer) = self.all.get_mut(&number) else { return };
        consumer.delivered(count, taken, bytes);
        if consumer.partition.is_some()
            && let Some(lending) = self.lending.get_mut(&consumer.lead)
        {
            lending.delivered(number, taken, !consumer.no_ack);
        }
        self.mark(number);
    }

    /// Messages that a consumer may be given beside the limits of its channel.
    pub(crate) fn room_of(&self, consumer: &Consumer) -> u32 {
        match self.lending.get(&consumer.lead) {
            Some(lending) if consumer.limit > 0 && !consumer.no_ack => {
                consumer.limit.saturating_sub(lending.held())
            }
            Some(_) | None => u32::MAX,
        }
    }

    /// As a client counts them: one of several partitions is one.
    pub(crate) fn count(&self) -> u64 {
        self.all.len() as u64 - self.followers
    }

    /// Whether its queue has it: then it can be paused.
    pub(crate) fn is_attached(&self, number: u64) -> bool {
        self.all.get(&number).is_some_and(|it| it.is_attached && !it.is_over)
    }

    /// It is paused, or goes on. Where its queue, with all partitions, is to hear it; nowhere if it was so already.
    pub(crate) fn pause(&mut self, number: u64, pause: Option<ConsumerPause>) -> Vec<Source> {
        let is_paused = pause.is_some();
        match self.all.get_mut(&number) {
            Some(consumer) if consumer.pause.is_some() != is_paused => consumer.pause = pause,
            Some(_) | None => return Vec::new(),
        }
        let mut sources = Vec::new();
        for member in self.members(number) {
            if let Some(consumer) = self.all.get_mut(&member) {
                consumer.spec.is_paused = is_paused;
                sources.push(consumer.source);
            }
        }
        sources
    }

    pub(crate) fn find(&self, number: u64) -> Option<&Consumer> {
        self.all.get(&number)
    }

    pub(crate) fn find_mut(&mut self, number: u64) -> Option<&mut Consumer> {
        self.all.get_mut(&number)
    }

    /// With all of its partitions, if it leads.
    pub(crate) fn remove(&mut self, number: u64) -> Option<Consumer> {
        self.forget_telling(number);
        self.forget_capacity(number);
        let members =
            self.lending.remove(&number).map_or_else(Vec::new, |lending| lending.numbers());
        for member in members.into_iter().filter(|member| *member != number) {
            self.all.remove(&member);
            self.followers -= 1;
        }
        self.all.remove(&number)
    }

    /// One whose queue serves it no more. The other partitions of its queue may have messages for theirs on the way.
    pub(crate) fn forget(&mut self, number: u64) {
        let Some(consumer) = self.all.remove(&number) else { return };
        self.forget_telling(number);
        self.forget_capacity(number);
        self.followers -= u64::from(consumer.lead != number);
        if let Some(lending) = self.lending.get_mut(&consumer.lead) {
            lending.remove(number);
            if lending.count() == 0 {
                self.lending.remove(&consumer.lead);
            }
        }
    }

    /// All of a channel that is closed, whose queues serve them no more.
    pub(crate) fn forget_channel(&mut self, channel: ChannelRef) {
        let of_it = self.all.values().filter(|consumer| consumer.channel == channel);
        let numbers: Vec<u64> = of_it.map(|consumer| consumer.source.consumer).collect();
        numbers.into_iter().for_each(|number| self.forget(number));
    }

    /// `count` messages of it were settled.
    #[inline]
    pub(crate) fn settled(&mut self, number: u64, count: u32, outcome: Outcome) {
        if let Some(consumer) = self.all.get_mut(&number) {
            if outcome == Outcome::Done {
                consumer.acked += u64::from(count);
                self.capacities.done(consumer.lead, count);
            }
            consumer.held = consumer.held.saturating_sub(count);
            if consumer.partition.is_some()
                && let Some(lending) = self.lending.get_mut(&consumer.lead)
            {
                lending.settled(count);
            }
        }
        self.mark(number);
    }

    /// Looks at its credit again before the step ends.
    pub(crate) fn mark(&mut self, number: u64) {
        let Some(mut consumer) = self.all.get_mut(&number) else { return };
        let lead = consumer.lead;
        if lead != number {
            let Some(leader) = self.all.get_mut(&lead) else { return };
            consumer = leader;
        }
        if !consumer.is_dirty {
            consumer.is_dirty = true;
            self.dirty.push(lead);
        }
    }

    /// Whether some consumer waits for credit.
    pub(crate) fn wants_credit(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Grants what the marked consumers may have; `room` says what a channel has left.
    pub(crate) fn grant(
        &mut self,
        mut room: impl FnMut(ChannelRef) -> Option<ChannelRoom>,
        mut granted: impl FnMut(Source, u32),
    ) {
        for number in self.dirty.drain(..) {
            let Some(consumer) = self.all.get_mut(&number) else { continue };
            consumer.is_dirty = false;
            if consumer.is_over || !consumer.is_attached {
                continue;
            }
            let Some(room) = room(consumer.channel) else { continue };
            if self.lending.contains_key(&number) && self.elected.holds_back(consumer) {
                continue;
            }
            if let Some(lending) = self.lending.get_mut(&number) {
                lending.grant(&mut self.all, room, self.window_bytes, &mut granted);
                continue;
            }
            if consumer.is_returning {
                // More credit would keep what goes back going round.
                continue;
            }
            let credit = consumer.grant(room.of(consumer), self.window_bytes);
            if credit > 0 {
                granted(consumer.source, credit);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::GroupId;

    const CHANNEL: ChannelRef = ChannelRef { number: 1, life: 1 };
    const FREE: ChannelRoom = ChannelRoom { prefetch: 0, consumed: 0, unacked: 0 };

    fn source(consumer: u64) -> Source {
        Source { group: GroupId(1), queue: QueueId(7), consumer }
    }

    fn granted(consumers: &mut Consumers, room: ChannelRoom) -> u32 {
        let mut all = 0;
        consumers.grant(|_| Some(room), |_, credit| all += credit);
        all
    }

    #[test]
    fn credit_that_comes_free_before_the_queue_knows_its_consumer_is_given_behind_that() {
        let mut consumers = Consumers::default();
        let room = ChannelRoom { prefetch: 3, consumed: 2, unacked: 2 };
        assert_eq!(consumers.add(CHANNEL, "a", source(1), false, 0, room), 1);
        consumers.mark(1);
        let room = ChannelRoom { prefetch: 3, consumed: 0, unacked: 0 };
        assert_eq!(granted(&mut consumers, room), 0, "its queue would not know whose it is");
        consumers.attached(1);
        assert_eq!(granted(&mut consumers, room), 2);
    }

    #[test]
    fn a_consumer_with_a_prefetch_gets_it_back_with_each_ack() {
        let mut consumers = Consumers::default();
        assert_eq!(consumers.add(CHANNEL, "a", source(1), false, 10, FREE), 10);
        consumers.attached(1);
        consumers.delivered(1, 10, 10, 1000);
        consumers.mark(1);
        assert_eq!(granted(&mut consumers, FREE), 0);
        consumers.settled(1, 4, Outcome::Done);
        assert_eq!(granted(&mut consumers, FREE), 4);
    }

    #[test]
    fn a_consumer_without_a_prefetch_gets_a_window_that_fits_its_messages() {
        let mut consumers = Consumers::default();
        let start = limits::WINDOW_MESSAGES_START;
        assert_eq!(consumers.add(CHANNEL, "a", source(1), true, 0, FREE), start);
        consumers.attached(1);
        let bytes = u64::from(start) * 1024 * 1024;
        consumers.delivered(1, start, start, bytes);
        consumers.mark(1);
        assert_eq!(granted(&mut consumers, FREE), 4, "four messages of a MiB");
    }

    #[test]
    fn a_window_is_smaller_where_the_sessions_together_have_much_on_their_way() {
        let mut consumers =
            Consumers { window_bytes: limits::WINDOW_BYTES_LOW, ..Consumers::default() };
        assert_eq!(consumers.add(CHANNEL, "a", source(1), true, 0, FREE), 1, "a guess");
        consumers.attached(1);
        consumers.delivered(1, 1, 1, 1024);
        consumers.mark(1);
        assert_eq!(granted(&mut consumers, FREE), 256, "messages of a KiB");
        consumers.delivered(1, 256, 256, 256 * 128 * 1024 * 1024);
        consumers.mark(1);
        assert_eq!(granted(&mut consumers, FREE), 1, "it goes on, one by one");
    }

    #[test]
    fn without_a_prefetch_a_channel_holds_no_more_than_its_cap() {
        let mut consumers = Consumers::default();
        let full = ChannelRoom { prefetch: 0, consumed: 0, unacked: limits::UNACKED_MAX };
        assert_eq!(consumers.add(CHANNEL, "a", source(1), false, 0, full), 0);
        consumers.attached(1);
        consumers.settled(1, 1, Outcome::Done);
        let room = ChannelRoom { prefetch: 0, consumed: 0, unacked: limits::UNACKED_MAX - 5 };
        assert_eq!(granted(&mut consumers, room), 5);
    }

    #[test]
    fn what_went_back_comes_again_once_nothing_of_it_is_on_its_way() {
        let mut consumers = Consumers::default();
        let room = |consumed| ChannelRoom { prefetch: 10, consumed, unacked: consumed };
        assert_eq!(consumers.add(CHANNEL, "a", source(1), false, 0, room(0)), 10);
        consumers.attached(1);
        assert_eq!(granted(&mut consumers, room(0)), 0);
        // Another consumer of the channel holds eight: of five messages two are taken.
        consumers.delivered(1, 5, 2, 100);
        assert!(consumers.find(1).unwrap().is_returning());
        // Room comes, and credit is out still: what comes by that goes back, and brings no more.
        assert_eq!(granted(&mut consumers, room(2)), 0);
        consumers.delivered(1, 3, 0, 0);
        assert_eq!(granted(&mut consumers, room(2)), 0);
        consumers.delivered(1, 2, 0, 0);
        assert!(!consumers.find(1).unwrap().is_returning());
        assert_eq!(granted(&mut consumers, room(2)), 8);
    }

    fn partitions(count: u16) -> Vec<(Partition, u16)> {
        let one = |index: u16| Partition::plain(QueueId(u64::from(index) + 7), GroupId(1));
        (0..count).map(|index| (one(index), index)).collect()
    }

    #[test]
    fn a_queue_that_grows_again_and_again_gives_each_partition_a_consumer_and_takes_nobodys() {
        let mut consumers = Consumers::default();
        let alone = consumers.draw_row();
        consumers.add(CHANNEL, "a", source(alone), false, 10, FREE);
        consumers.attached(alone);
        let other: Vec<u64> = (0..20).map(|_| consumers.draw()).collect();
        for number in &other {
            consumers.add(CHANNEL, "b", source(*number), false, 10, FREE);
        }
        let several = consumers.add_partitions(CHANNEL, "c", &partitions(2), false, 10);
        consumers.attached(several);
        for count in [2, 5, 16] {
            for lead in [alone, several] {
                for number in consumers.grow(lead, &partitions(count)) {
                    consumers.grown(number, true);
                }
                let members = consumers.members(lead);
                // Leaders know the partitions of one consumer by that.
                let in_a_row: Vec<u64> = (0..count.into()).map(|index| lead + index).collect();
                assert_eq!(members, in_a_row);
                let of = members.iter().map(|it| consumers.find(*it).unwrap().partition.unwrap());
                assert_eq!(of.collect::<Vec<_>>(), (0..count).collect::<Vec<_>>());
            }
        }
        assert!(other.iter().all(|number| consumers.find(*number).unwrap().tag() == "b"));
        assert_eq!(consumers.count(), 22);
        // One that its partition did not take is asked for again.
        let added = consumers.grow(alone, &partitions(18));
        consumers.grown(added[0], false);
        consumers.grown(added[1], true);
        assert_eq!(consumers.outgrown(|_| 18), [alone, several]);
        assert_eq!(consumers.grow(alone, &partitions(18)), [added[0]]);
    }

    #[test]
    fn a_channel_that_is_closed_leaves_no_consumer_behind() {
        let mut consumers = Consumers::default();
        let another = ChannelRef { number: 2, life: 1 };
        for round in 0..3 {
            let number = consumers.draw();
            consumers.add(CHANNEL, "a", source(number), false, 0, FREE);
            let several = consumers.add_partitions(CHANNEL, "b", &partitions(3), false, 5);
            // Those that are told of one by one.
            consumers.forget(several + 1);
            let stays = consumers.draw();
            consumers.add(another, "c", source(stays), false, 0, FREE);
            assert_eq!(consumers.count(), 3 + round);
            consumers.forget_channel(CHANNEL);
            assert_eq!((consumers.count(), consumers.all.len() as u64), (1 + round, 1 + round));
        }
        assert!(consumers.lending.is_empty());
    }

    #[test]
    fn a_channel_wide_prefetch_bounds_every_consumer() {
        let mut consumers = Consumers::default();
        let room = ChannelRoom { prefetch: 3, consumed: 1, unacked: 1 };
        assert_eq!(consumers.add(CHANNEL, "a", source(1), false, 10, room), 2);
        assert_eq!(consumers.add(CHANNEL, "b", source(2), false, 0, room), 2);
    }
}
