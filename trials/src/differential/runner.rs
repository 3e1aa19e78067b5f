//! Does the operations of a program one after the other on one broker, and writes down what its
//! clients see.
//!
//! Channels 1 and 2 are on one connection, channel 3 is on another, and channel 4 on that of the program's second user.
//! A channel or connection that the broker closed is opened again by the next operation that wants it. At the end all
//! channels are closed, which hands back what they hold, and what is then left in every queue is read.

mod administration;
mod names;
mod requests;
mod settling;
mod step;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::{Duration, Instant};

use amqp::{Method, basic, channel, connection, exchange, queue};

use super::program::{Operation, Program, Verb};
use super::wire::{Told, Wire};
use super::{Endpoint, leeway};
use administration::{Administration, PASSWORD};
use step::Step;

/// What clients saw, operation by operation.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Trace(pub(super) Vec<Vec<String>>);

/// The connections to one broker, which one program after the other uses.
pub(super) struct Site {
    endpoint: Endpoint,
    wires: [Option<Wire>; LINKS],
    /// The longest that an operation of the last program took.
    pub(super) slowest: Duration,
}

/// How long is waited until nothing moves any more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeout {
    /// So many rounds of questions in a row have to have the same answers.
    pub(super) rounds: u32,
    /// The pause between two rounds in a program in which messages move in the background.
    pub(super) gap: Duration,
    /// The pause after an operation in a program in which messages expire.
    pub(super) expiry: Duration,
}

impl Timeout {
    /// Enough for nearly every program.
    pub(super) const USUAL: Timeout =
        Timeout { rounds: 2, gap: Duration::from_millis(12), expiry: Duration::from_millis(300) };
    /// For a program whose traces differed, once nothing else runs.
    pub(super) const GREAT: Timeout =
        Timeout { rounds: 5, gap: Duration::from_millis(40), expiry: Duration::from_millis(500) };
}

const LINKS: usize = 3;
/// The second user's.
const USER_CHANNEL: u16 = 4;
/// The channel on which queues are asked how many messages they have. Clients do not use it.
const CONTROL: u16 = 90;
/// How long a broker may take for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// Runs `program`. `prefix` goes before every name of its own.
pub(super) fn run(
    site: &mut Site,
    program: &Program,
    prefix: &str,
    timeout: Timeout,
) -> io::Result<Trace> {
    let mut slowest = Duration::ZERO;
    let mut runner = Runner::new(site, program, prefix, timeout);
    let mut trace = Trace::default();
    if runner.has_user {
        runner.administration().make_user()?;
    }
    for operation in &program.0 {
        let begun = Instant::now();
        runner.operate(operation)?;
        trace.0.push(runner.step.take(prefix));
        if operation.verb != Verb::Pause {
            slowest = slowest.max(begun.elapsed());
        }
    }
    runner.finish(program)?;
    trace.0.push(runner.step.take(prefix));
    runner.clean(program)?;
    site.slowest = slowest;
    Ok(trace)
}

impl Site {
    pub(super) fn new(endpoint: Endpoint) -> Site {
        Site { endpoint, wires: [None, None, None], slowest: Duration::ZERO }
    }
}

/// A program that runs.
struct Runner<'a> {
    site: &'a mut Site,
    prefix: &'a str,
    timeout: Timeout,
    is_timed: bool,
    is_slow: bool,
    /// Somebody beside `guest` does some of it.
    has_user: bool,
    /// Queues that are replicated where queues have types, by full name.
    quorum: BTreeSet<String>,
    /// Channels that are open.
    channels: BTreeMap<u16, Channel>,
    has_control: [bool; LINKS],
    /// Queues by full name, while they are thought to exist.
    queues: BTreeMap<String, Queue>,
    /// Consumers that were started, by channel and tag.
    consuming: Vec<(u16, String)>,
    /// Messages published so far: the next one's name.
    published: u32,
    step: Step,
    /// Operations done, for telling apart what came in different steps.
    steps: usize,
}

#[derive(Default)]
struct Channel {
    /// The number of the next publish, once the channel is in confirm mode.
    confirms: Option<u64>,
    /// Publishes without an answer, by number.
    unconfirmed: BTreeMap<u64, String>,
    held: Vec<Held>,
    /// Consumers whose deliveries are settled as they are sent.
    unheld: BTreeSet<String>,
    /// The delivery that was settled last.
    settled: Option<u64>,
}

/// A delivery that the client has not settled.
struct Held {
    /// The consumer's tag, or `got`.
    source: String,
    tag: u64,
    step: usize,
}

struct Queue {
    /// Which connection may ask for it.
    link: usize,
    /// Ready messages and consumers, as they were told last.
    counts: Option<(u32, u32)>,
    /// What the trace says of them.
    noted: Option<(u32, u32)>,
}

fn link_of(channel: u16) -> usize {
    match channel {
        USER_CHANNEL => 2,
        3 => 1,
        _ => 0,
    }
}

/// The channel on which what is left in the queues of a connection is read.
fn reader_of(link: usize) -> u16 {
    match link {
        0 => 1,
        1 => 3,
        _ => USER_CHANNEL,
    }
}

impl<'a> Runner<'a> {
    fn new(site: &'a mut Site, program: &Program, prefix: &'a str, timeout: Timeout) -> Self {
        Self {
            site,
            prefix,
            timeout,
            is_timed: program.is_timed(),
            is_slow: program.is_slow(),
            has_user: program.has_user(),
            quorum: program.quorum().map(|name| format!("{prefix}{name}")).collect(),
            channels: BTreeMap::new(),
            has_control: [false; LINKS],
            queues: BTreeMap::new(),
            consuming: Vec::new(),
            published: 0,
            step: Step::default(),
            steps: 0,
        }
    }

    fn operate(&mut self, operation: &Operation) -> io::Result<()> {
        self.steps += 1;
        match operation.verb {
            Verb::Pause => {
                let ms = operation.word(0).parse().unwrap_or(0);
                std::thread::sleep(Duration::from_millis(ms));
            }
            Verb::Policy | Verb::DeletePolicy | Verb::Grant | Verb::Topics | Verb::ClearTopics => {
                let answer = self.administration().carry_out(operation)?;
                self.step.replies.push(answer);
            }
            Verb::Close => self.close(operation.channel)?,
            Verb::Disconnect => self.disconnect(link_of(operation.channel))?,
            _ => {
                if self.open(operation.channel)? {
                    self.request(operation)?;
                }
            }
        }
        self.settle(operation.verb)
    }

    /// Connects and opens the channel where it is not open. False if the broker refuses that.
    fn open(&mut self, channel: u16) -> io::Result<bool> {
        let link = link_of(channel);
        if self.channels.contains_key(&channel) {
            return Ok(true);
        }
        self.wire(link)?.send(channel, &Method::ChannelOpen(channel::Open));
        self.channels.insert(channel, Channel::default());
        self.await_reply(link, channel, false)?;
        Ok(self.channels.contains_key(&channel))
    }

    /// The connection of that number.
    fn wire(&mut self, link: usize) -> io::Result<&mut Wire> {
        if self.site.wires[link].is_none() {
            let login = match link == link_of(USER_CHANNEL) {
                true => (self.administration().user(), PASSWORD),
                false => ("guest".to_owned(), "guest"),
            };
            let wire = Wire::connect(self.site.endpoint.amqp, (&login.0, login.1))?;
            self.site.wires[link] = Some(wire);
            self.has_control[link] = false;
        }
        Ok(self.site.wires[link].as_mut().expect("it was connected just now"))
    }

    /// Waits for the answer to a question on `channel`; what comes before it is written down. The
    /// answer is, too, if it `is_shown`.
    fn await_reply(&mut self, link: usize, channel: u16, is_shown: bool) -> io::Result<()> {
        let deadline = Instant::now() + ANSWER_MAX;
        loop {
            let Some(told) = self.next(link, deadline)? else {
                if self.site.wires[link].is_some() {
                    self.step.closes.push(format!("no answer on channel {channel}"));
                    self.lost(link);
                }
                return Ok(());
            };
            let is_answer = match &told {
                Told::Reply { channel: at, .. }
                | Told::Counted { channel: at, .. }
                | Told::Got { channel: at, .. }
                | Told::ChannelClosed { channel: at, .. } => *at == channel,
                Told::ConnectionClosed { .. } => true,
                Told::Flow { .. }
                | Told::Delivered { .. }
                | Told::Returned { .. }
                | Told::Confirmed { .. }
                | Told::Cancelled { .. } => false,
            };
            if is_shown || !matches!(told, Told::Reply { .. }) || !is_answer {
                self.take(link, told);
            }
            if is_answer {
                return Ok(());
            }
        }
    }

    /// The next thing that the broker says on a connection; none when it is lost or too late.
    fn next(&mut self, link: usize, deadline: Instant) -> io::Result<Option<Told>> {
        let Some(wire) = &mut self.site.wires[link] else { return Ok(None) };
        match wire.next(deadline) {
            Ok(told) => Ok(told),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(error),
            Err(_) => {
                self.step.closes.push(format!("connection {link} is lost"));
                self.lost(link);
                Ok(None)
            }
        }
    }

    /// Forgets a connection and all that was on it.
    fn lost(&mut self, link: usize) {
        self.site.wires[link] = None;
        self.has_control[link] = false;
        self.channels.retain(|channel, _| link_of(*channel) != link);
        for queue in self.queues.values_mut().filter(|queue| queue.link == link) {
            queue.link = 0;
        }
    }

    fn close(&mut self, channel: u16) -> io::Result<()> {
        if self.channels.contains_key(&channel) {
            let close = channel::Close { reply_code: 200, reply_text: "bye", ..Default::default() };
            let link = link_of(channel);
            self.wire(link)?.send(channel, &Method::ChannelClose(close));
            self.await_reply(link, channel, false)?;
            self.channels.remove(&channel);
        }
        Ok(())
    }

    fn disconnect(&mut self, link: usize) -> io::Result<()> {
        if self.site.wires[link].is_some() {
            let text = "bye";
            let close =
                connection::Close { reply_code: 200, reply_text: text, class_id: 0, method_id: 0 };
            self.wire(link)?.send(0, &Method::ConnectionClose(close));
            self.await_reply(link, 0, false)?;
            self.lost(link);
        }
        Ok(())
    }

    /// Closes all channels and reads what is left in every queue.
    fn finish(&mut self, program: &Program) -> io::Result<()> {
        self.steps += 1;
        // Who of those that still consume would get what comes back is open, unless one is active.
        let is_open = !program.has_single_active();
        for (channel, tag) in std::mem::take(&mut self.consuming) {
            if is_open && self.channels.contains_key(&channel) {
                let cancel =
                    Method::BasicCancel(basic::Cancel { consumer_tag: &tag, no_wait: false });
                self.wire(link_of(channel))?.send(channel, &cancel);
                self.await_reply(link_of(channel), channel, false)?;
            }
        }
        self.settle(Verb::Cancel)?;
        let open: Vec<u16> = self.channels.keys().copied().collect();
        for channel in open {
            self.close(channel)?;
            self.settle(Verb::Close)?;
        }
        if self.has_user {
            self.administration().grant_all()?;
        }
        let queues: Vec<(String, usize)> =
            self.queues.iter().map(|(name, queue)| (name.clone(), queue.link)).collect();
        for (name, link) in queues {
            let channel = reader_of(link);
            if self.open(channel)? {
                let consume = basic::Consume {
                    queue: &name,
                    consumer_tag: &name,
                    no_ack: true,
                    ..Default::default()
                };
                self.wire(link)?.send(channel, &Method::BasicConsume(consume));
                self.await_reply(link, channel, false)?;
                self.settle(Verb::Consume)?;
                if self.quorum.contains(&name)
                    && let Some(messages) = self.step.deliveries.get_mut(&(channel, name))
                {
                    leeway::returned(messages);
                }
            }
        }
        Ok(())
    }

    /// Deletes all that the program may have left behind.
    fn clean(&mut self, program: &Program) -> io::Result<()> {
        let open: Vec<u16> = self.channels.keys().copied().collect();
        for channel in open {
            self.close(channel)?;
        }
        if self.has_user {
            self.disconnect(link_of(USER_CHANNEL))?;
        }
        let is_exclusive = self.queues.values().any(|queue| queue.link == 1);
        if is_exclusive {
            self.disconnect(1)?;
        }
        let mut names = BTreeSet::new();
        for operation in &program.0 {
            match operation.verb {
                Verb::Queue => drop(names.insert((true, self.own(operation.word(0))))),
                Verb::Exchange => drop(names.insert((false, self.own(operation.word(0))))),
                _ => {}
            }
        }
        let prefix = self.prefix;
        for (is_queue, name) in names.iter().filter(|(_, name)| name.starts_with(prefix)) {
            if !self.open(1)? {
                return Ok(());
            }
            let method = if *is_queue {
                Method::QueueDelete(queue::Delete { queue: name, ..Default::default() })
            } else {
                Method::ExchangeDelete(exchange::Delete { exchange: name, ..Default::default() })
            };
            self.wire(0)?.send(1, &method);
            self.await_reply(0, 1, false)?;
        }
        self.close(1)?;
        self.close_control()?;
        self.administration().clean(program)
    }

    /// The next program opens its own.
    fn close_control(&mut self) -> io::Result<()> {
        for link in 0..LINKS {
            if self.has_control[link] && self.site.wires[link].is_some() {
                let close =
                    channel::Close { reply_code: 200, reply_text: "bye", ..Default::default() };
                self.wire(link)?.send(CONTROL, &Method::ChannelClose(close));
                self.await_reply(link, CONTROL, false)?;
                self.has_control[link] = false;
            }
        }
        Ok(())
    }

    /// The full name of what is the program's own: `q1`, `e2`.
    fn own(&self, name: &str) -> String {
        names::own(self.prefix, name)
    }

    /// Where the program's policies and its second user are asked for.
    fn administration(&self) -> Administration<'_> {
        Administration { http: self.site.endpoint.http, prefix: self.prefix }
    }
}
