//! A client that speaks AMQP: the `client` crate's core, over a connection that the seed cuts into pieces and cuts off, to
//! the broker's own session. On its channels it publishes with confirms, consumes, and fetches single messages.

mod publishing;
mod taking;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use amqp::Method;
use broker::Config;
use broker::session::driver::Load;
use client::{Core, Error, Event, Input, Options, Url};
use machine::{Attached, SessionId};

use super::connection::{Clock, Connection, config};
use super::{Home, Outside, Plan};
use crate::history::{DISCONNECT, What};
use crate::sim::Diary;
use crate::sim::agenda::Micros;
use crate::sim::node::Node;
use publishing::Publishing;
use taking::Taking;

/// It does something of its own accord after so long, from and to.
const ACTS: (Micros, Micros) = (2_000, 60_000);
/// And while queues are drained: with a prefetch of one, a message each time.
const DRAINS: (Micros, Micros) = (1_000, 4_000);
/// An answer that takes longer is not waited for: the connection is given up.
const TIMEOUT: Micros = 8_000_000;
/// Seconds between heartbeats. Zero: none.
const HEARTBEATS: [u16; 3] = [0, 2, 10];
/// How long a login, or a goodbye, may take.
const ANSWER_WAIT: Duration = Duration::from_secs(6);

const PUBLISH: u16 = 1;
const CONSUME: u16 = 2;
const FETCH: u16 = 3;

/// What clients may do at the moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mood {
    pub(super) may_publish: bool,
    /// Nobody goes of his own will.
    pub(super) is_steady: bool,
    /// Everything is settled for good.
    pub(super) is_draining: bool,
}

/// What AMQP clients did how often.
#[derive(Clone, Copy, Debug, Default)]
pub struct AmqpCounts {
    pub connections: u64,
    /// Messages: confirmed, returned, delivered to consumers, fetched.
    pub confirmed: u64,
    pub returned: u64,
    pub delivered: u64,
    pub fetched: u64,
    /// Settles of more than one message at once.
    pub multiples: u64,
}

impl std::ops::AddAssign for AmqpCounts {
    fn add_assign(&mut self, other: Self) {
        self.connections += other.connections;
        self.confirmed += other.confirmed;
        self.returned += other.returned;
        self.delivered += other.delivered;
        self.fetched += other.fetched;
        self.multiples += other.multiples;
    }
}

pub(super) struct AmqpClient {
    pub(super) name: String,
    plans: Rc<[Plan]>,
    /// Where it takes messages from.
    queue: usize,
    url: Url,
    clock: Clock,
    config: Arc<Config>,
    generation: u64,
    connected: Option<Connected>,
    act_at: Micros,
    /// When the agenda has its next turn.
    planned: Micros,
    pub(super) counts: AmqpCounts,
}

/// How far a channel is. Without a connection there is none.
///
/// ```text
///   Gone ──> Opening ──open-ok──> Asking ──all is answered──> Ready ──> Closing ──close-ok──> Gone
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Gone,
    Opening,
    /// It declares what it needs.
    Asking,
    Ready,
    Closing,
}

struct Connected {
    connection: Connection,
    core: Core,
    since: Micros,
    is_open: bool,
    is_closing: bool,
    /// The broker asked it to publish nothing.
    is_blocked: bool,
    publishing: Publishing,
    consuming: Taking,
    fetching: Option<Taking>,
}

/// Who does something, and what it may touch.
struct By<'a, 'b> {
    name: &'a str,
    generation: u64,
    plans: &'a [Plan],
    core: &'a mut Core,
    counts: &'a mut AmqpCounts,
    outside: &'a mut Outside<'b>,
}

impl By<'_, '_> {
    fn saw(&mut self, what: What) {
        self.outside.diary.saw(self.name, what);
    }

    fn complain(&mut self, text: &str) {
        let text = format!("{} {text}", self.name);
        self.saw(What::Protocol { text });
    }

    fn send(&mut self, channel: u16, method: &Method<'_>) {
        self.core.send(channel, method);
    }

    fn one_of(&mut self, count: u64) -> bool {
        self.outside.chance.within(0, count) == 0
    }
}

impl AmqpClient {
    pub(super) fn new(plans: &Rc<[Plan]>, number: usize, queue: usize, clock: Clock) -> Self {
        Self {
            name: format!("amqp-{number}"),
            plans: Rc::clone(plans),
            queue,
            url: "amqp://guest:guest@localhost:5672/%2F".parse().expect("it is a URL"),
            clock,
            config: Arc::new(config()),
            generation: 0,
            connected: None,
            act_at: 0,
            planned: Micros::MAX,
            counts: AmqpCounts::default(),
        }
    }

    pub(super) fn home(&self) -> Option<Home> {
        self.connected.as_ref().map(|connected| connected.connection.home)
    }

    /// Whether it is logged in at that node.
    pub(super) fn is_in(&self, node: usize) -> bool {
        let is_there = |it: &Connected| it.is_open && it.connection.home.node == node;
        self.connected.as_ref().is_some_and(is_there)
    }

    pub(super) fn load(&self) -> Load {
        self.connected.as_ref().map_or_else(Load::default, |it| it.connection.load())
    }

    /// Everything that it published is answered.
    pub(super) fn is_quiet(&self) -> bool {
        self.connected.as_ref().is_none_or(|connected| connected.publishing.is_quiet())
    }

    /// When it is to have its next turn, if nobody has planned that yet.
    pub(super) fn plan(&mut self, nodes: &[Node], now: Micros) -> Option<Micros> {
        let mut due = self.act_at;
        if let Some(Connected { connection, core, .. }) = &self.connected {
            let is_paused = nodes[connection.home.node].is_paused;
            let core = core.deadline().map(|at| self.clock.due(at, now));
            due = connection.due(is_paused, now).into_iter().chain(core).fold(due, Micros::min);
        }
        let due = due.max(now + 1);
        (due < self.planned).then(|| {
            self.planned = due;
            due
        })
    }

    pub(super) fn answered(&mut self, answer: cluster::Answer, outside: &mut Outside<'_>) {
        if let Some(connected) = &mut self.connected {
            connected.connection.answered(answer, outside);
        }
    }

    /// Whatever is due at the two ends of its connection. `others` is what the other sessions of its node have.
    pub(super) fn turn(&mut self, mood: Mood, others: Load, outside: &mut Outside<'_>) {
        if self.planned <= outside.now {
            self.planned = Micros::MAX;
        }
        if let Some(connected) = &mut self.connected {
            if !outside.nodes[connected.connection.home.node].is_paused {
                connected.connection.run(others, outside);
            }
            let core = &mut connected.core;
            if connected.connection.receive(core.buffer(), outside) {
                self.step(Input::Received, outside);
            }
        }
        let is_due =
            |it: &Connected| it.core.deadline().is_some_and(|at| at <= self.clock.at(outside.now));
        if self.connected.as_ref().is_some_and(is_due) {
            self.step(Input::DeadlinePassed, outside);
        }
        if self.connected.as_ref().is_some_and(|connected| connected.connection.is_at_end()) {
            self.end(outside);
        }
        if self.act_at <= outside.now {
            let (from, to) = if mood.is_draining { DRAINS } else { ACTS };
            self.act_at = outside.now + outside.chance.within(from, to);
            self.act(mood, others, outside);
        }
        self.write(outside);
    }

    /// What it wants to say goes into the socket.
    fn write(&mut self, outside: &mut Outside<'_>) {
        let Some(Connected { connection, core, .. }) = &mut self.connected else { return };
        if core.has_output() {
            let bytes = core.output().split();
            connection.send(bytes, outside);
            let (now, mut events) = (self.clock.at(outside.now), Vec::new());
            core.step(now, Input::Written, &mut events).expect("nothing is wrong with writing");
        }
    }

    fn act(&mut self, mood: Mood, others: Load, outside: &mut Outside<'_>) {
        let Some(connected) = &mut self.connected else { return self.connect(mood, outside) };
        if !outside.nodes[connected.connection.home.node].is_paused {
            connected.connection.look_for_room(others, outside);
        }
        let is_late = connected.waits_since().is_some_and(|at| outside.now - at > TIMEOUT);
        if is_late || (!mood.is_steady && outside.chance.within(0, 400) == 0) {
            return self.end(outside);
        }
        if !connected.is_open || connected.is_closing {
            return;
        }
        if !mood.is_steady && outside.chance.within(0, 400) == 0 {
            return self.say_goodbye(outside);
        }
        self.with(outside, |connected, by| {
            let may_publish = mood.may_publish && !connected.is_blocked;
            connected.publishing.act(may_publish, mood.is_steady, by);
            connected.consuming.act(mood, by);
            connected.fetching.iter_mut().for_each(|fetching| fetching.act(mood, by));
        });
    }

    /// Lets its channels do something.
    fn with(
        &mut self,
        outside: &mut Outside<'_>,
        act: impl FnOnce(&mut Channels<'_>, &mut By<'_, '_>),
    ) {
        let Some(connected) = &mut self.connected else { return };
        let Connected { connection, core, is_blocked, publishing, consuming, fetching, .. } =
            connected;
        let mut by = By {
            name: &self.name,
            generation: self.generation,
            plans: &self.plans,
            core,
            counts: &mut self.counts,
            outside,
        };
        let is_blocked = *is_blocked;
        act(&mut Channels { connection, is_blocked, publishing, consuming, fetching }, &mut by);
    }

    fn connect(&mut self, _mood: Mood, outside: &mut Outside<'_>) {
        let Some(home) = outside.connect() else { return };
        self.generation += 1;
        self.counts.connections += 1;
        let heartbeat = HEARTBEATS[outside.chance.within(0, HEARTBEATS.len() as u64) as usize];
        let options = Options { heartbeat, answer_wait: ANSWER_WAIT, ..Options::named(&self.name) };
        let connection = Connection::connect(home, self.clock, &self.config, outside);
        let core = Core::new(&self.url, &options, self.clock.at(outside.now));
        // Where there is one consumer at a time, nobody else takes messages.
        let is_shared = self.plans[self.queue].consumers > 1;
        self.connected = Some(Connected {
            connection,
            core,
            since: outside.now,
            is_open: false,
            is_closing: false,
            is_blocked: false,
            publishing: Publishing::default(),
            consuming: Taking::new(CONSUME, self.queue),
            fetching: is_shared.then(|| Taking::new(FETCH, self.queue)),
        });
    }

    /// The client's core does what follows from `input`.
    fn step(&mut self, input: Input, outside: &mut Outside<'_>) {
        let Some(connected) = &mut self.connected else { return };
        let mut events = Vec::new();
        let result = connected.core.step(self.clock.at(outside.now), input, &mut events);
        for event in events {
            self.heard(event, outside);
        }
        if let Err(error) = result {
            // A broker that cannot say whether something is done ends the connection, and one that is short of memory
            // may. All else would be a mistake of one of the two.
            if !error.is_temporary() {
                self.complain(&format!("lost its connection: {error}"), outside.diary);
            }
            if matches!(error, Error::ConnectionClosed { .. }) {
                self.write(outside);
            }
            self.end(outside);
        }
    }

    fn heard(&mut self, event: Event, outside: &mut Outside<'_>) {
        let Some(connected) = &mut self.connected else { return };
        match event {
            Event::Opened => connected.is_open = true,
            Event::Closed => self.end(outside),
            Event::Blocked { .. } => connected.is_blocked = true,
            Event::Unblocked => connected.is_blocked = false,
            Event::ChannelClosed { channel, code, text } => {
                let text = format!("lost channel {channel}: {code} {text}");
                self.complain(&text, outside.diary);
                self.end(outside);
            }
            Event::Method { channel, payload } => self.with(outside, |it, by| {
                let method = match Method::decode(&payload) {
                    Ok(method) => method,
                    Err(error) => return by.complain(&format!("cannot read a method: {error}")),
                };
                match channel {
                    PUBLISH => it.publishing.told(&method, by),
                    CONSUME => it.consuming.told(&method, by),
                    _ => it.fetching.iter_mut().for_each(|taking| taking.told(&method, by)),
                }
            }),
            Event::Confirmed { tag, multiple, positive, .. } => self.with(outside, |it, by| {
                it.publishing.confirmed((tag, multiple), positive, it.connection, by);
            }),
            Event::Content { channel, content } => self.with(outside, |it, by| match channel {
                PUBLISH => it.publishing.returned(&content, by),
                CONSUME => it.consuming.given(&content, by),
                _ => it.fetching.iter_mut().for_each(|taking| taking.given(&content, by)),
            }),
        }
    }

    fn say_goodbye(&mut self, outside: &mut Outside<'_>) {
        let by = self.clock.at(outside.now) + ANSWER_WAIT;
        self.with(outside, |it, by| it.publishing.end(by));
        let Some(connected) = &mut self.connected else { return };
        connected.is_closing = true;
        connected.since = outside.now;
        connected.core.close(by);
    }

    /// The node of its connection is gone. What was on its way may come all the same.
    pub(super) fn disconnected(&mut self, node: usize, outside: &mut Outside<'_>) {
        let Some(connected) = self.connected.as_mut().filter(|it| it.connection.home.node == node)
        else {
            return;
        };
        if outside.chance.percent(50) && connected.connection.receive_rest(connected.core.buffer())
        {
            self.step(Input::Received, outside);
        }
        self.end(outside);
    }

    /// The connection is cut. What it said and nobody has looked at is lost.
    fn end(&mut self, outside: &mut Outside<'_>) {
        let Some(connected) = &self.connected else { return };
        let unheard = connected.connection.unread_since();
        if let Some(since) = unheard.into_iter().chain(connected.waits_since()).min() {
            let (kind, node) = (DISCONNECT.to_owned(), connected.connection.home.node as u32 + 1);
            let (t0, t1) = (since * 1000, outside.diary.nanos());
            let fault = What::Fault { kind, node, t0, t1, sectors: 0 };
            outside.diary.saw(&self.name, fault);
        }
        self.with(outside, |it, by| {
            it.publishing.end(by);
            it.connection.hang_up(by.outside);
        });
        self.connected = None;
    }

    fn complain(&self, text: &str, diary: &mut Diary) {
        let text = format!("{} {text}", self.name);
        diary.saw(&self.name, What::Protocol { text });
    }

    /// What is wrong in what leaders know of it.
    pub(super) fn differs(&self, known: &[Attached], nodes: &[Node]) -> Option<String> {
        let connected = self.connected.as_ref()?;
        let life = nodes[connected.connection.home.node].life.as_ref()?;
        let queue = life.catalog.queue(super::VHOST, self.plans[self.queue].name)?.id;
        let session = connected.connection.home.session;
        let of_it: Vec<&Attached> =
            known.iter().filter(|it| it.consumer.session == session).collect();
        let theirs: u64 = of_it.iter().map(|it| it.held.len()).sum();
        let fetched = connected.fetching.as_ref().map_or(0, Taking::held);
        let ours = connected.consuming.held() + fetched;
        let name = &self.name;
        if theirs != ours {
            return Some(format!("{name} holds {ours}, its leader knows of {theirs}"));
        }
        let credit = connected.consuming.credit()?;
        let attached: Vec<u64> = of_it
            .iter()
            .filter(|it| it.is_attached && it.queue == queue)
            .map(|it| it.spec.credit.into())
            .collect();
        (attached != [credit])
            .then(|| format!("{name} has credit {credit}, its leader knows of {attached:?}"))
    }

    /// At the end: an answer that never came.
    pub(super) fn stalled(&self, now: Micros, diary: &mut Diary) {
        let Some(connected) = &self.connected else { return };
        if let Some(since) = connected.waits_since().filter(|since| now - since > TIMEOUT) {
            let home = connected.connection.home;
            self.complain(&format!("waits since {} ms at {home:?}", since / 1000), diary);
        }
        if !connected.publishing.is_quiet() {
            self.complain("has publishes without an answer", diary);
        }
    }

    pub(super) fn is_session(&self, session: SessionId, life: u64) -> bool {
        self.home().is_some_and(|home| home.session == session && home.life == life)
    }
}

/// The parts of a connection that do something on their own.
struct Channels<'a> {
    connection: &'a mut Connection,
    is_blocked: bool,
    publishing: &'a mut Publishing,
    consuming: &'a mut Taking,
    fetching: &'a mut Option<Taking>,
}

impl Connected {
    /// Since when it waits for an answer.
    fn waits_since(&self) -> Option<Micros> {
        let Self { publishing, consuming, fetching, .. } = self;
        let connection = (!self.is_open || self.is_closing).then_some(self.since);
        let fetching = fetching.as_ref().and_then(Taking::waits_since);
        let channels = [publishing.waits_since(), consuming.waits_since(), fetching, connection];
        channels.into_iter().flatten().min()
    }
}
