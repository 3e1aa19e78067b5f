//! A connection to a node: bytes on their way, and at their other end the broker's own session and driver. What
//! happens to them is drawn here; what they do then is the broker's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use broker::Config;
use broker::session::driver::{Driver, End, Load};
use broker::session::{Input, ReplyAddresses, Session, Verify, View};
use bytes::BytesMut;
use cluster::{Alarms, Answer, Delivery, Request, Ticket};
use machine::{Batch, Command, EntryReader, GroupId, Messages};

use super::byte_stream::ByteStream;
use super::{Home, Outside, id_of};
use crate::sim::agenda::Micros;

/// The socket takes so many bytes that the client has not.
const SOCKET_BYTES: usize = 4 << 10;
/// The session's task runs so soon after something came for it, from and to.
const TASK: (Micros, Micros) = (5, 300);
/// The check of a password takes from and to so long.
const CHECK: (Micros, Micros) = (1_000, 60_000);
/// A timer rings this late.
const LATE: Micros = 1_000;
/// What all publishers of a node may have in flight: little, so that some wait.
const IN_FLIGHT_BYTES: u64 = 48 << 10;

/// What the simulated clients are offered.
pub(super) fn config() -> Config {
    Config {
        frame_bytes_max: amqp::limits::FRAME_BYTES_MIN,
        heartbeat_seconds: 10,
        in_flight_bytes_max: IN_FLIGHT_BYTES,
        ..Config::default()
    }
}

/// Time as sessions and clients are told it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    origin: Instant,
}

impl Clock {
    #[allow(
        clippy::disallowed_methods,
        reason = "somewhere to count from: all else is differences"
    )]
    pub(super) fn new() -> Self {
        Self { origin: Instant::now() }
    }

    pub(super) fn at(self, now: Micros) -> Instant {
        self.origin + Duration::from_micros(now)
    }

    /// When to look at a deadline: not before the next millisecond.
    pub(super) fn due(self, at: Instant, now: Micros) -> Micros {
        let micros = at.saturating_duration_since(self.origin).as_micros();
        u64::try_from(micros).unwrap_or(Micros::MAX).max(now + LATE)
    }
}

/// Direct replies are not simulated.
struct NoAddresses;

impl ReplyAddresses for NoAddresses {
    fn is_open(&self, _address: &str) -> bool {
        false
    }
}

pub(super) struct Connection {
    pub(super) home: Home,
    clock: Clock,
    driver: Driver,
    to_broker: ByteStream,
    to_client: ByteStream,
    /// Since when the session has bytes that it has not looked at.
    unread_since: Option<Micros>,
    /// Everything that waited went into the socket, and the session wants to know that.
    has_written: bool,
    answers: Vec<Answer>,
    answers_at: Micros,
    checked: Option<(Micros, bool)>,
    alarms: Alarms,
    /// The session's end of the connection is closed.
    pub(super) is_over: bool,
    /// It has said that nothing more will come.
    is_leaving: bool,
    appends: BTreeMap<Ticket, (GroupId, Vec<String>)>,
    /// Messages that the session has handed over and that no majority is known to have, with their appends.
    unstored: BTreeMap<String, BTreeSet<Ticket>>,
}

impl Connection {
    pub(super) fn connect(
        home: Home,
        clock: Clock,
        config: &Arc<Config>,
        outside: &mut Outside<'_>,
    ) -> Self {
        let node = &outside.nodes[home.node];
        let wall_ms = node.now(outside.now).wall_ms;
        let mut seed = [0; 32];
        seed.chunks_exact_mut(8)
            .for_each(|part| part.copy_from_slice(&outside.chance.number().to_le_bytes()));
        let peer = ([127, 0, 0, 1], 40_000).into();
        let (config, now, write_stall) =
            (Arc::clone(config), clock.at(outside.now), config.write_stall);
        let session = Session::new(config, home.session, node.id, peer, seed, now, wall_ms);
        Self {
            home,
            clock,
            driver: Driver::new(session, write_stall),
            to_broker: ByteStream::default(),
            to_client: ByteStream::default(),
            unread_since: None,
            has_written: false,
            answers: Vec::new(),
            answers_at: Micros::MAX,
            checked: None,
            alarms: Alarms::default(),
            is_over: false,
            is_leaving: false,
            appends: BTreeMap::new(),
            unstored: BTreeMap::new(),
        }
    }

    /// The client's bytes go into its socket.
    pub(super) fn send(&mut self, bytes: BytesMut, outside: &mut Outside<'_>) {
        if !self.is_over {
            self.to_broker.send(bytes, outside.now, outside.chance);
        }
    }

    /// What has come for the client. False: nothing has.
    pub(super) fn receive(&mut self, into: &mut BytesMut, outside: &mut Outside<'_>) -> bool {
        let has_come = self.to_client.take(outside.now, usize::MAX, into);
        self.write(outside);
        has_come
    }

    /// All that is on its way to the client, as if it came now: its node is gone.
    pub(super) fn receive_rest(&mut self, into: &mut BytesMut) -> bool {
        self.to_client.take(Micros::MAX, usize::MAX, into)
    }

    /// Nothing more comes for the client, ever.
    pub(super) fn is_at_end(&self) -> bool {
        self.is_over && self.to_client.due().is_none()
    }

    /// When the oldest bytes were sent that the session has not looked at.
    pub(super) fn unread_since(&self) -> Option<Micros> {
        self.unread_since.into_iter().chain(self.to_broker.oldest()).min()
    }

    /// Whether an append has this message that no majority is known to have.
    pub(super) fn is_unstored(&self, id: &str) -> bool {
        self.unstored.contains_key(id)
    }

    /// What it has of what its node counts.
    pub(super) fn load(&self) -> Load {
        if self.is_over { Load::default() } else { self.driver.load() }
    }

    /// When something happens at one of the two ends.
    pub(super) fn due(&self, is_paused: bool, now: Micros) -> Option<Micros> {
        let client = self.to_client.due();
        if self.is_over || is_paused {
            return client;
        }
        let wants = self.driver.wants();
        let read = self.to_broker.due().filter(|_| wants.read_bytes.is_some());
        let answers = (!self.answers.is_empty()).then_some(self.answers_at);
        let checked = self.checked.map(|(at, _)| at);
        let deadline = wants.deadline.map(|at| self.clock.due(at, now));
        let written = self.has_written.then_some(now);
        let all = [client, read, answers, checked, deadline, written];
        all.into_iter().flatten().min()
    }

    pub(super) fn answered(&mut self, answer: Answer, outside: &mut Outside<'_>) {
        if self.is_over {
            return;
        }
        match &answer {
            Answer::Delivered(delivery) => self.given(delivery, outside),
            Answer::Got { delivery: Some(delivery), .. } => self.given(delivery, outside),
            Answer::Appended { ticket } => self.stored(*ticket, outside),
            Answer::Got { delivery: None, .. } | Answer::AppendFailed { .. } => {}
            Answer::Catalog { .. } | Answer::Attached { .. } | Answer::Detached { .. } => {}
            Answer::Purged { .. } | Answer::Status { .. } | Answer::Closed { .. } => {}
            Answer::Admitted { .. } | Answer::Leaving(_) | Answer::Cancelled { .. } => {}
            Answer::Described { .. } | Answer::Peeked { .. } | Answer::Locked { .. } => {}
            Answer::Withheld { .. } => {}
            Answer::SessionEnded { .. } | Answer::Alarms(_) | Answer::Stopping => {}
            Answer::Elected { .. } => {}
        }
        self.hear(answer, outside);
    }

    fn hear(&mut self, answer: Answer, outside: &mut Outside<'_>) {
        if self.answers.is_empty() {
            self.answers_at = outside.now + outside.chance.within(TASK.0, TASK.1);
        }
        self.answers.push(answer);
    }

    /// Messages are in the session's hands.
    fn given(&self, delivery: &Delivery, outside: &mut Outside<'_>) {
        let messages = Messages::of(delivery.queue, &delivery.bytes);
        for (seq, (head, _)) in (delivery.first_seq..).zip(messages) {
            let (place, m) = ((delivery.queue, seq), id_of(head));
            outside.watch.delivered(delivery.queue, seq, &m, false);
            if !self.is_leaving {
                outside.watch.holds.given(place, self.home.session, &m);
            }
        }
    }

    /// An append is known to be on a majority's disks.
    fn stored(&mut self, ticket: Ticket, outside: &mut Outside<'_>) {
        let Some((group, ids)) = self.appends.remove(&ticket) else { return };
        for id in ids {
            outside.watch.confirmed(group, &id);
            let Some(tickets) = self.unstored.get_mut(&id) else { continue };
            tickets.remove(&ticket);
            if tickets.is_empty() {
                self.unstored.remove(&id);
            }
        }
    }

    /// Runs the session's task as long as there is something for it. `others` is what the other sessions of its node
    /// have.
    pub(super) fn run(&mut self, others: Load, outside: &mut Outside<'_>) {
        let alarms = Alarms { disk: outside.nodes[self.home.node].is_short(), memory: false };
        if alarms != self.alarms && !self.is_over {
            self.alarms = alarms;
            self.hear(Answer::Alarms(alarms), outside);
        }
        while !self.is_over && self.turn(others, outside) {}
    }

    /// One step, if something is due.
    fn turn(&mut self, others: Load, outside: &mut Outside<'_>) -> bool {
        let now = outside.now;
        let wants = self.driver.wants();
        let has_come = self.to_broker.due().is_some_and(|at| at <= now);
        let read_bytes = wants.read_bytes.filter(|_| has_come);
        let is_answered = !self.answers.is_empty() && self.answers_at <= now;
        // Which of them is seen first is the runtime's chance.
        let reads_first = !is_answered || (read_bytes.is_some() && outside.chance.percent(50));
        if let Some(max) = read_bytes.filter(|_| reads_first) {
            let received = self.driver.socket().0;
            let before = received.len();
            self.to_broker.take(now, max, received);
            let count = received.len() - before;
            let input = self.driver.received(count);
            self.step(input, others, outside);
        } else if is_answered {
            let mut answers = std::mem::take(&mut self.answers);
            self.step(Ok(Input::Answered(&mut answers)), others, outside);
        } else if let Some((_, is_right)) = self.checked.take_if(|(at, _)| *at <= now) {
            self.step(Ok(Input::Verified(is_right)), others, outside);
        } else if std::mem::take(&mut self.has_written) {
            let input = self.driver.written();
            self.step(input, others, outside);
        } else if wants.deadline.is_some_and(|at| at <= self.clock.at(now)) {
            self.step(Ok(Input::DeadlinePassed), others, outside);
            // A deadline that stays is looked at in the next millisecond.
            return false;
        } else {
            return false;
        }
        true
    }

    /// Whoever waits for room looks whether there is some.
    pub(super) fn look_for_room(&mut self, others: Load, outside: &mut Outside<'_>) {
        if !self.is_over && self.driver.wants().room {
            self.step(Ok(Input::DeadlinePassed), others, outside);
        }
    }

    fn step(&mut self, input: Result<Input<'_>, End>, others: Load, outside: &mut Outside<'_>) {
        let Ok(input) = input else { return self.hang_up(outside) };
        let now = outside.now;
        let (mut together, node) = (others, &outside.nodes[self.home.node]);
        together += self.load();
        let Some(life) = &node.life else { return };
        let view = View {
            catalog: &life.catalog,
            alarms: self.alarms,
            in_flight_bytes: together.in_flight_bytes,
            outbound_bytes: together.outbound_bytes,
            consumers: together.consumers,
            replies: &NoAddresses,
            quotas: &life.population,
        };
        if self.driver.step(self.clock.at(now), &view, input).is_err() {
            return self.hang_up(outside);
        }
        let channels = self.driver.session().channel_count();
        life.population.borrow_mut().set_channels(self.home.session, channels);
        self.unread_since = match self.driver.socket().0.is_empty() {
            true => None,
            false => self.unread_since.or(Some(now)),
        };
        let out = self.driver.outputs();
        out.notice = None;
        out.replies.clear();
        let (verify, requests) = (out.verify.take(), std::mem::take(&mut out.requests));
        if let Some(verify) = verify {
            self.checked = Some((now + outside.chance.within(CHECK.0, CHECK.1), is_right(&verify)));
        }
        if !requests.is_empty() {
            requests.iter().for_each(|request| self.asks(request, outside));
            outside.ask(self.home, requests);
        }
        self.write(outside);
        if self.driver.end().is_some() {
            self.hang_up(outside);
        }
    }

    /// What the session asks of its node, as far as the watcher has to know.
    fn asks(&mut self, request: &Request, outside: &mut Outside<'_>) {
        let session = self.home.session;
        match request {
            Request::Settle { queue, ranges, outcome, .. } => {
                for seq in ranges.iter() {
                    outside.watch.holds.let_go((*queue, seq), session, outcome.is_final());
                }
            }
            Request::Append { group, ticket, batch, .. } => {
                let ids = ids_of(batch);
                for id in &ids {
                    self.unstored.entry(id.clone()).or_default().insert(*ticket);
                }
                self.appends.insert(*ticket, (*group, ids));
            }
            Request::EndSession { .. } => {
                self.is_leaving = true;
                outside.watch.holds.left(session);
            }
            Request::Catalog { .. } | Request::Attach { .. } | Request::Detach { .. } => {}
            Request::Credit { .. } | Request::Get { .. } | Request::Purge { .. } => {}
            Request::Status { .. } | Request::CloseQueue { .. } | Request::Admit { .. } => {}
            Request::Describe { .. } | Request::Peek { .. } | Request::Lock { .. } => {}
            Request::Withhold { .. } | Request::ChangeConsumer { .. } => {}
        }
    }

    /// The socket takes what it has room for.
    fn write(&mut self, outside: &mut Outside<'_>) {
        let room = SOCKET_BYTES.saturating_sub(self.to_client.count());
        let waiting_bytes = self.driver.waiting_bytes();
        if self.is_over || waiting_bytes == 0 {
            return;
        }
        self.has_written = false;
        if room == 0 {
            return;
        }
        let tells_written = self.driver.wants().written;
        let sent = self.driver.socket().1;
        let bytes = sent.split_to(room.min(waiting_bytes));
        self.has_written = sent.is_empty() && tells_written;
        self.to_client.send(bytes, outside.now, outside.chance);
    }

    /// The session's task ends, and its node takes back what it held.
    pub(super) fn hang_up(&mut self, outside: &mut Outside<'_>) {
        if !std::mem::replace(&mut self.is_over, true) {
            outside.watch.holds.left(self.home.session);
            outside.leave(self.home);
        }
    }
}

/// The messages of a batch by their ids.
fn ids_of(batch: &Batch) -> Vec<String> {
    let entry = batch.clone().stamp(0);
    let commands = EntryReader::new(&entry).into_iter().flatten().flatten();
    let enqueued = commands.filter_map(|(_, command)| match command {
        Command::Enqueue(enqueue) => Some(id_of(enqueue.head)),
        _ => None,
    });
    enqueued.collect()
}

/// A check takes tens of milliseconds of the machine's time, and all runs check the same.
fn is_right(verify: &Verify) -> bool {
    static RIGHT: OnceLock<(String, String)> = OnceLock::new();
    let stored = verify.stored.clone().unwrap_or_default();
    let password = String::from_utf8_lossy(&verify.password).into_owned();
    if RIGHT.get().is_some_and(|right| *right == (stored.clone(), password.clone())) {
        return true;
    }
    let is_right = broker::password::verify(&stored, &password);
    if is_right {
        let _ = RIGHT.set((stored, password));
    }
    is_right
}
