//! Streams, and those who publish to them and read them: the same requests as a session's, in other queues than those of
//! the load. What readers see is judged as it comes (`shelf`), because a stream is never drained.

mod reader;
mod shelf;
mod subscriber;
mod writer;

use std::ops::Range;

use cluster::shard::Shard;
use cluster::{Answer, Request, Ticket};
use machine::{Arguments, CatalogReply, GroupId, QueueId, QueueStatus, SessionId, Value, Version};

use super::{Home, Outside};
use crate::history::What;
use crate::sim::Diary;
use crate::sim::agenda::Micros;
use crate::workload::Chance;
use reader::Reader;
use shelf::Shelf;
use subscriber::{Seen, Subscriber};
use writer::Writer;

/// A stream of the run, or one of its partitions.
struct Plan {
    name: &'static str,
    /// Which of how many.
    partition: (usize, usize),
    max_bytes: Option<u64>,
    max_age_ms: Option<u64>,
    /// Every body has so many bytes; without it they differ.
    body_bytes: Option<usize>,
    writers: usize,
    readers: usize,
    /// Somebody has a subscription of it, and whether he has that set to other places.
    subscription: Option<bool>,
    /// Consumers of the subscription: of several partitions one at a time is served.
    consumers: usize,
    /// Most messages have a key. The subscription is given those alone, and keeps their order.
    is_keyed: bool,
}

/// The routing key of the message with this number: a key by which order is kept, or what no filter matches.
fn routing_key(number: u64) -> String {
    match number % KEYS {
        0 => "none".to_owned(),
        key => format!("key.{key}"),
    }
}

/// One of them is none.
const KEYS: u64 = 6;

/// Points of a stream's timeline stand 64 KiB and a second apart: what is kept is some of them.
const PLANS: [Plan; 5] = [
    Plan {
        name: "events",
        partition: (0, 1),
        max_bytes: None,
        max_age_ms: None,
        body_bytes: None,
        writers: 2,
        readers: 4,
        subscription: Some(true),
        consumers: 1,
        is_keyed: false,
    },
    Plan {
        name: "events-few",
        partition: (0, 1),
        max_bytes: Some(100_000),
        max_age_ms: None,
        body_bytes: Some(1_500),
        writers: 2,
        readers: 2,
        subscription: Some(false),
        consumers: 3,
        is_keyed: true,
    },
    Plan {
        name: "events-young",
        partition: (0, 1),
        max_bytes: None,
        max_age_ms: Some(2_000),
        body_bytes: None,
        writers: 1,
        readers: 2,
        subscription: None,
        consumers: 0,
        is_keyed: false,
    },
    PARTED,
    Plan { partition: (1, 2), ..PARTED },
];

/// One of two partitions, which serve one of two consumers at a time.
const PARTED: Plan = Plan {
    name: "events-parted",
    partition: (0, 2),
    max_bytes: None,
    max_age_ms: None,
    body_bytes: None,
    writers: 1,
    readers: 1,
    subscription: Some(false),
    consumers: 2,
    is_keyed: false,
};
/// A declaration that is not answered after so long is asked again over another connection.
const TIMEOUT: Micros = 10_000_000;
const DECLARE: Ticket = Ticket(1);
/// How a stream stands: this and its place among them.
const STATUS: u64 = 10;

/// What they may do now.
#[derive(Clone, Copy)]
pub(super) struct Mood {
    pub(super) is_draining: bool,
    /// Nobody leaves of his own will.
    pub(super) is_steady: bool,
}

pub(super) struct Streams {
    chance: Chance,
    shelves: Vec<Shelf>,
    keeper: Keeper,
    writers: Vec<Writer>,
    readers: Vec<Reader>,
    subscribers: Vec<Subscriber>,
    /// By stream, what the consumers of its subscription saw.
    seen: Vec<Seen>,
    now: Micros,
    /// Of the diary, what was looked through for clocks that jump.
    looked_through: usize,
    /// A clock has jumped: times of streams may be any.
    has_jumped: bool,
    is_draining: bool,
}

/// The one that declares the streams, and in the end asks how they stand.
#[derive(Default)]
struct Keeper {
    home: Option<Home>,
    asked: Option<Micros>,
    /// The stream that is asked about next, and what was told of each since nothing is published any more.
    turn: usize,
    told: [Option<QueueStatus>; PLANS.len()],
}

/// What was done how often.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamCounts {
    pub confirmed: u64,
    pub read: u64,
    /// Times that somebody began to read.
    pub attached: u64,
    /// Times that readers found that what they would have read next was gone.
    pub jumps: u64,
    /// Times that messages were seen to be gone.
    pub trims: u64,
    /// Messages that came to who consumes a subscription, and how many of them flagged.
    pub subscribed: u64,
    pub flagged: u64,
    /// Times that a subscription was seen at another place.
    pub seeks: u64,
}

impl std::ops::AddAssign for StreamCounts {
    fn add_assign(&mut self, other: Self) {
        self.confirmed += other.confirmed;
        self.read += other.read;
        self.attached += other.attached;
        self.jumps += other.jumps;
        self.trims += other.trims;
        self.subscribed += other.subscribed;
        self.flagged += other.flagged;
        self.seeks += other.seeks;
    }
}

impl Streams {
    pub(super) fn new(seed: u64) -> Self {
        let (mut writers, mut readers, mut subscribers) = (Vec::new(), Vec::new(), Vec::new());
        for (stream, plan) in PLANS.iter().enumerate() {
            writers.extend((0..plan.writers).map(|nth| Writer::new(plan, stream, nth)));
            readers.extend((0..plan.readers).map(|nth| Reader::new(plan.name, stream, nth)));
            let new = |may_seek| Subscriber::new(plan, stream, may_seek);
            subscribers.extend((0..plan.consumers).filter_map(|_| plan.subscription.map(new)));
        }
        Self {
            chance: Chance::named(seed, "streams"),
            shelves: PLANS.iter().map(Shelf::new).collect(),
            keeper: Keeper::default(),
            writers,
            readers,
            subscribers,
            seen: PLANS.iter().map(|_| Seen::default()).collect(),
            now: 0,
            looked_through: 0,
            has_jumped: false,
            is_draining: false,
        }
    }

    /// Those who have turns.
    pub(super) fn actors(&self) -> usize {
        1 + self.writers.len() + self.readers.len() + self.subscribers.len()
    }

    /// One of them has its turn.
    pub(super) fn act(&mut self, number: usize, mood: Mood, outside: &mut Outside<'_>) {
        self.look(outside);
        self.is_draining = mood.is_draining;
        let Self { chance, shelves, writers, readers, subscribers, seen, .. } = self;
        if let Some(nth) = number.checked_sub(1 + writers.len() + readers.len()) {
            let subscriber = &mut subscribers[nth];
            let stream = subscriber.stream;
            subscriber.act(mood, (&shelves[stream], &mut seen[stream]), chance, outside);
        } else if let Some(nth) = number.checked_sub(1 + writers.len()) {
            let reader = &mut readers[nth];
            reader.act(mood, &shelves[reader.stream], chance, outside);
        } else if let Some(nth) = number.checked_sub(1) {
            let writer = &mut writers[nth];
            writer.act(mood, &mut shelves[writer.stream], chance, outside);
        } else {
            self.keep(outside);
        }
        self.tell(outside.diary);
    }

    /// What replicas have of the streams now.
    fn look(&mut self, outside: &Outside<'_>) {
        self.now = outside.now;
        let seen = &outside.diary.events[self.looked_through..];
        self.has_jumped |= seen.iter().any(|event| matches!(event.what, What::Clock { .. }));
        self.looked_through = outside.diary.events.len();
        for shelf in &mut self.shelves {
            for kept in kept(shelf, outside) {
                shelf.stands(kept, outside.now, self.has_jumped);
            }
        }
        for subscriber in &self.subscribers {
            subscriber.stands(&mut self.shelves[subscriber.stream], &self.seen[subscriber.stream]);
        }
    }

    /// Declares what is not there.
    fn keep(&mut self, outside: &mut Outside<'_>) {
        let Some(home) = self.keeper.home else {
            self.keeper.home = outside.connect();
            return;
        };
        if let Some(asked) = self.keeper.asked {
            if outside.now - asked > TIMEOUT {
                outside.leave(home);
                self.keeper = Keeper::default();
            }
            return;
        }
        let agreed = outside.nodes[home.node].life.as_ref().map(|life| life.catalog.agreed());
        if agreed.is_none_or(|agreed| agreed < Version::STREAMS) {
            return;
        }
        for (shelf, plan) in self.shelves.iter_mut().zip(&PLANS) {
            if shelf.place.is_some() {
                continue;
            }
            shelf.place = outside.partition(home, shelf.name, plan.partition.0);
            if shelf.place.is_none() {
                let flags = [true, false, false];
                let command = outside.declaration(home, plan.name, flags, arguments(plan));
                self.keeper.asked = Some(outside.now);
                return outside.ask(home, vec![Request::Catalog { ticket: DECLARE, command }]);
            }
        }
        for subscriber in self.subscribers.iter_mut().filter(|it| !it.is_there) {
            subscriber.is_there = outside.queue(home, &subscriber.name).is_some();
            if !subscriber.is_there {
                let flags = [true, false, false];
                let arguments = Subscriber::arguments(&PLANS[subscriber.stream]);
                let command = outside.declaration(home, &subscriber.name, flags, arguments);
                self.keeper.asked = Some(outside.now);
                return outside.ask(home, vec![Request::Catalog { ticket: DECLARE, command }]);
            }
        }
        let turn = self.keeper.turn;
        if let Some((queue, group)) = self.shelves[turn].place.filter(|_| self.is_draining) {
            self.keeper.asked = Some(outside.now);
            self.keeper.turn = (turn + 1) % PLANS.len();
            let ticket = Ticket(STATUS + turn as u64);
            outside.ask(home, vec![Request::Status { ticket, group, queue }]);
        }
    }

    fn keeper_hears(&mut self, answer: Answer, diary: &mut Diary) {
        self.keeper.asked = None;
        match answer {
            Answer::Catalog { ticket: DECLARE, reply: CatalogReply::QueueDeclared { .. } } => {}
            Answer::Status { ticket: Ticket(number), status } => {
                if let Some(told) = self.keeper.told.get_mut((number - STATUS) as usize) {
                    *told = status;
                }
            }
            // What is not known to be done is asked again.
            Answer::AppendFailed { .. } => {}
            other => {
                let text = format!("who declares streams was told {other:?}");
                diary.saw("streams", What::Protocol { text });
            }
        }
    }

    pub(super) fn answered(
        &mut self,
        session: SessionId,
        life: u64,
        answer: Answer,
        outside: &mut Outside<'_>,
    ) {
        let is_home = |home: Option<Home>| is_of(home, session, life);
        if is_home(self.keeper.home) {
            return self.keeper_hears(answer, outside.diary);
        }
        if let Some(writer) = self.writers.iter_mut().find(|it| is_home(it.home)) {
            writer.answered(answer, &mut self.shelves[writer.stream], outside);
        } else if let Some(at) = self.readers.iter().position(|it| is_home(it.home)) {
            // What is thrown away in the same step is known before what comes behind it.
            self.look(outside);
            let reader = &mut self.readers[at];
            reader.answered(answer, &mut self.shelves[reader.stream], outside);
        } else if let Some(at) = self.subscribers.iter().position(|it| is_home(it.home)) {
            self.look(outside);
            self.subscriber_hears(at, answer);
        }
        self.tell(outside.diary);
    }

    /// B4: of several consumers of a partition nobody is sent anything while another holds something.
    fn subscriber_hears(&mut self, at: usize, answer: Answer) {
        let stream = self.subscribers[at].stream;
        if PLANS[stream].partition.1 == 1 {
            let (shelf, seen) = (&mut self.shelves[stream], &mut self.seen[stream]);
            return self.subscribers[at].answered(answer, shelf, seen);
        }
        let others = self.subscribers.iter().enumerate().filter(|(nth, _)| *nth != at);
        let mut of_partition = others.map(|(_, other)| other).filter(|it| it.stream == stream);
        let holder = of_partition.find_map(Subscriber::holds);
        if let (Answer::Delivered(delivery), Some((level, seq))) = (&answer, holder)
            && level == delivery.queue
        {
            let name = &self.subscribers[at].name;
            let text = format!(
                "{name} of partition {stream} is served {} while another consumer holds {seq}",
                delivery.first_seq
            );
            self.shelves[stream].violated(text);
        }
        self.subscribers[at].answered(answer, &mut self.shelves[stream], &mut self.seen[stream]);
    }

    pub(super) fn is_session(&self, session: SessionId, life: u64) -> bool {
        let writers = self.writers.iter().map(|writer| writer.home);
        let readers = self.readers.iter().map(|reader| reader.home);
        let subscribers = self.subscribers.iter().map(|subscriber| subscriber.home);
        let mut all = writers.chain(readers).chain(subscribers).chain([self.keeper.home]);
        all.any(|home| is_of(home, session, life))
    }

    pub(super) fn disconnected(&mut self, node: usize) {
        if self.keeper.home.is_some_and(|home| home.node == node) {
            self.keeper = Keeper::default();
        }
        self.writers.iter_mut().for_each(|writer| writer.disconnected(node));
        self.readers.iter_mut().for_each(|reader| reader.disconnected(node));
        self.subscribers.iter_mut().for_each(|subscriber| subscriber.disconnected(node));
    }

    /// Nothing more is published. One reader of each stream begins with the first message, in a session of its own.
    pub(super) fn drain(&mut self) {
        self.is_draining = true;
        self.keeper.told = Default::default();
        let mut before = None;
        for reader in &mut self.readers {
            if before.replace(reader.stream) != Some(reader.stream) {
                reader.begin_again();
            }
        }
    }

    /// Whether all that was published has an answer, and every reader has all that there is for it.
    pub(super) fn is_drained(&self) -> bool {
        self.writers.iter().all(Writer::is_quiet)
            && self.readers.iter().all(|reader| reader.has_all(&self.shelves[reader.stream]))
            && self
                .subscribers
                .iter()
                .all(|it| it.has_all(&self.shelves[it.stream], &self.seen[it.stream]))
    }

    /// What is kept that should be gone by now, or what a leader knows that is not so.
    pub(super) fn differs(&self) -> Option<String> {
        self.shelves.iter().zip(&self.keeper.told).enumerate().find_map(
            |(stream, (shelf, told))| {
                shelf.place?;
                let readers = self.readers.iter().filter(|it| it.stream == stream && it.reads());
                let should = (shelf.kept(), readers.count() as u64);
                let is = told.as_ref().map(|told| (told.ready, u64::from(told.consumers)));
                if is != Some(should) {
                    let name = shelf.name;
                    return Some(format!(
                        "{name} has messages and readers {should:?}, its leader knows of {is:?}"
                    ));
                }
                shelf.keeps_too_much(self.now, self.has_jumped)
            },
        )
    }

    /// Writes down what was left.
    pub(super) fn drained(&mut self, diary: &mut Diary) {
        for writer in self.writers.iter().filter(|writer| !writer.is_quiet()) {
            diary.saw("streams", What::Protocol { text: writer.complaint() });
        }
        let mut all = true;
        for reader in &self.readers {
            let shelf = &self.shelves[reader.stream];
            if !reader.has_all(shelf) {
                all = false;
                diary.saw("streams", What::Protocol { text: reader.complaint(shelf) });
            }
        }
        for subscriber in &self.subscribers {
            let shelf = &self.shelves[subscriber.stream];
            let seen = &self.seen[subscriber.stream];
            if !subscriber.has_all(shelf, seen) {
                let text = subscriber.complaint(shelf, seen);
                diary.saw("streams", What::Protocol { text });
            }
        }
        if all {
            let has_jumped = self.has_jumped;
            self.shelves.iter_mut().for_each(|shelf| shelf.read_through(has_jumped));
        }
        self.tell(diary);
    }

    fn tell(&mut self, diary: &mut Diary) {
        for text in self.shelves.iter_mut().flat_map(Shelf::take_violations) {
            diary.saw("streams", What::Protocol { text });
        }
    }

    pub(super) fn counts(&self) -> StreamCounts {
        let mut all = StreamCounts::default();
        self.shelves.iter().for_each(|shelf| all += shelf.counts);
        all
    }
}

fn is_of(home: Option<Home>, session: SessionId, life: u64) -> bool {
    home.is_some_and(|home| home.session == session && home.life == life)
}

/// What each replica keeps of a stream.
fn kept(shelf: &Shelf, outside: &Outside<'_>) -> Vec<Range<u64>> {
    let Some((queue, group)) = shelf.place else { return Vec::new() };
    let shards = outside.nodes.iter().filter_map(|node| node.life.as_ref());
    let groups = shards.flat_map(|life| &life.shards).flat_map(Shard::groups);
    let found = groups.filter(|(of, _)| *of == group);
    found.filter_map(|(_, group)| group.kept_of_stream(queue)).collect()
}

/// Where a stream is, as all nodes route to it.
type At = (QueueId, GroupId);

fn arguments(plan: &Plan) -> Arguments {
    let text = |text: &str| Value::LongStr(text.as_bytes().to_vec());
    let mut arguments = Arguments::new().with("x-queue-type", text("stream"));
    if let Some(bytes) = plan.max_bytes {
        let bytes = Value::I64(i64::try_from(bytes).unwrap_or(i64::MAX));
        arguments = arguments.with("x-max-length-bytes", bytes);
    }
    if let Some(ms) = plan.max_age_ms {
        arguments = arguments.with("x-max-age", text(&format!("{}s", ms / 1000)));
    }
    if plan.partition.1 > 1 {
        arguments = arguments.with("x-partitions", Value::I64(plan.partition.1 as i64));
    }
    arguments
}
