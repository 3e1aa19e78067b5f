//! Waiting until nothing moves any more, and writing down what comes meanwhile.
//!
//! `channel.flow` is answered once a channel has done all that it was asked before; a passive declare
//! by the queue, once it has done all that this channel's connection asked of it. Dead letters travel
//! from queue to queue behind that, so the questions are asked in rounds until nothing new is seen.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use amqp::{Method, channel, connection, queue};

use super::super::leeway;
use super::super::program::Verb;
use super::super::wire::{self, Told};
use super::{ANSWER_MAX, CONTROL, Held, LINKS, Queue, Runner, link_of};

/// How long a program may keep moving by itself after one operation.
const SETTLING_MAX: Duration = Duration::from_secs(10);
/// How long a confirm may be waited for.
const CONFIRM_MAX: Duration = Duration::from_secs(4);
/// Where messages move in the background, so many more rounds.
const SLOW_ROUNDS: u32 = 2;

impl Runner<'_> {
    pub(super) fn settle(&mut self, verb: Verb) -> io::Result<()> {
        for link in 0..LINKS {
            self.ask_channels(link)?;
        }
        if self.is_timed && (may_move(verb) || !self.step.closes.is_empty()) {
            std::thread::sleep(self.timeout.expiry);
        }
        let begin = Instant::now();
        let gives_back = gives_back(verb) || !self.step.closes.is_empty();
        let is_slow = gives_back || (self.is_slow && may_move(verb));
        let mut quiet = 0;
        let rounds = self.timeout.rounds + if is_slow { SLOW_ROUNDS } else { 0 };
        while quiet < rounds {
            let has_moved = self.round()?;
            let is_waiting = begin.elapsed() < CONFIRM_MAX
                && self.channels.values().any(|channel| !channel.unconfirmed.is_empty());
            quiet = if has_moved || is_waiting { 0 } else { quiet + 1 };
            if begin.elapsed() > SETTLING_MAX {
                self.step.closes.push("it does not come to rest".to_owned());
                break;
            }
            if is_slow || is_waiting {
                std::thread::sleep(self.timeout.gap);
            }
        }
        self.note_counts();
        for channel in self.channels.values_mut() {
            for (_, name) in std::mem::take(&mut channel.unconfirmed) {
                self.step.closes.push(format!("{name} is not confirmed"));
            }
        }
        Ok(())
    }

    /// Asks every open channel and then every queue. Whether anything was new.
    fn round(&mut self) -> io::Result<bool> {
        let mut has_moved = false;
        for link in 0..LINKS {
            has_moved |= self.ask_channels(link)?;
        }
        for link in 0..LINKS {
            has_moved |= self.ask_queues(link)?;
        }
        Ok(has_moved)
    }

    fn ask_channels(&mut self, link: usize) -> io::Result<bool> {
        let mut flows: Vec<u16> =
            self.channels.keys().copied().filter(|at| link_of(*at) == link).collect();
        if flows.is_empty() {
            return Ok(false);
        }
        let wire = self.wire(link)?;
        for channel in &flows {
            wire.send(*channel, &Method::ChannelFlow(channel::Flow { active: true }));
        }
        self.gather(link, &mut flows, &mut VecDeque::new())
    }

    fn ask_queues(&mut self, link: usize) -> io::Result<bool> {
        let is_here = |queue: &Queue| queue.link == link;
        let queues = self.queues.iter().filter(|(_, queue)| is_here(queue));
        let mut asked: VecDeque<String> = queues.map(|(name, _)| name.clone()).collect();
        if asked.is_empty() {
            return Ok(false);
        }
        if !self.has_control[link] {
            self.wire(link)?.send(CONTROL, &Method::ChannelOpen(channel::Open));
            self.await_reply(link, CONTROL, false)?;
            self.has_control[link] = self.site.wires[link].is_some();
        }
        let wire = self.wire(link)?;
        for name in &asked {
            let passive = queue::Declare { queue: name, passive: true, ..Default::default() };
            wire.send(CONTROL, &Method::QueueDeclare(passive));
        }
        self.gather(link, &mut Vec::new(), &mut asked)
    }

    /// Takes what comes until all questions are answered. Whether anything else came.
    fn gather(
        &mut self,
        link: usize,
        flows: &mut Vec<u16>,
        asked: &mut VecDeque<String>,
    ) -> io::Result<bool> {
        let deadline = Instant::now() + ANSWER_MAX;
        let mut has_moved = false;
        while !flows.is_empty() || !asked.is_empty() {
            let Some(told) = self.next(link, deadline)? else {
                if self.site.wires[link].is_some() {
                    self.step.closes.push(format!("no answer on {flows:?}, about {asked:?}"));
                    self.lost(link);
                }
                return Ok(true);
            };
            match &told {
                Told::Flow { channel } => flows.retain(|at| at != channel),
                Told::Counted { channel: CONTROL, ready, consumers, .. } => {
                    let name = asked.pop_front().unwrap_or_default();
                    has_moved |= self.counted(&name, (*ready, *consumers));
                }
                Told::ChannelClosed { channel: CONTROL, code, .. } => {
                    let name = asked.pop_front().unwrap_or_default();
                    self.unanswered(link, &name, *code)?;
                    // The others are asked in the next round.
                    asked.clear();
                    has_moved = true;
                }
                Told::ChannelClosed { channel, .. } => {
                    flows.retain(|at| at != channel);
                    has_moved = true;
                    self.take(link, told);
                }
                Told::ConnectionClosed { .. } => {
                    self.take(link, told);
                    return Ok(true);
                }
                Told::Reply { .. }
                | Told::Counted { .. }
                | Told::Delivered { .. }
                | Told::Got { .. }
                | Told::Returned { .. }
                | Told::Confirmed { .. }
                | Told::Cancelled { .. } => {
                    has_moved = true;
                    self.take(link, told);
                }
            }
        }
        Ok(has_moved)
    }

    /// Whether these counts are new.
    fn counted(&mut self, name: &str, counts: (u32, u32)) -> bool {
        let Some(queue) = self.queues.get_mut(name) else { return false };
        let is_new = queue.counts != Some(counts);
        queue.counts = Some(counts);
        is_new
    }

    /// Writes down what the operation changed in the end: what was between is a matter of speed.
    fn note_counts(&mut self) {
        for (name, queue) in &mut self.queues {
            if queue.noted == queue.counts {
                continue;
            }
            if self.quorum.contains(name)
                && queue.noted.map(|counts| counts.0) == queue.counts.map(|counts| counts.0)
            {
                continue;
            }
            queue.noted = queue.counts;
            if let Some((ready, consumers)) = queue.counts {
                let text = leeway::counts(self.quorum.contains(name), ready, consumers);
                self.step.counts.insert(name.clone(), text);
            }
        }
    }

    /// The control channel was closed because of this queue.
    fn unanswered(&mut self, link: usize, name: &str, code: u16) -> io::Result<()> {
        self.has_control[link] = false;
        self.wire(link)?.send(CONTROL, &Method::ChannelCloseOk(channel::CloseOk));
        const RESOURCE_LOCKED: u16 = 405;
        let links = if self.has_user { LINKS } else { LINKS - 1 };
        match self.queues.get_mut(name) {
            // It belongs to the other connection.
            Some(queue) if code == RESOURCE_LOCKED && queue.link + 1 < links => queue.link += 1,
            _ => {
                self.queues.remove(name);
                self.step.counts.insert(name.to_owned(), "gone".to_owned());
            }
        }
        Ok(())
    }

    /// Writes down what the broker said.
    pub(super) fn take(&mut self, link: usize, told: Told) {
        match told {
            Told::Reply { text, .. } => self.step.replies.push(text),
            Told::Counted { queue, ready, consumers, .. } => {
                let counts = leeway::counts(self.quorum.contains(&queue), ready, consumers);
                self.step.replies.push(format!("declare-ok {queue} {counts}"));
            }
            Told::Flow { .. } => {}
            Told::Delivered { channel, consumer, tag, message } => {
                self.hold(channel, &consumer, tag);
                self.step.deliveries.entry((channel, consumer)).or_default().push(message);
            }
            Told::Got { channel, tag, left, message } => {
                self.hold(channel, "got", tag);
                let message = leeway::message(&message);
                self.step.gots.push(format!("got {}, {left} left", wire::show(&message)));
            }
            Told::Returned { channel, code, text, message } => {
                // It has to come before the confirm of the same message.
                let name = name_of(&message.body);
                let late = if self.step.acked.contains(&name) { " late" } else { "" };
                let message = leeway::message(&message);
                let text = format!("{code} {text}{late}: {}", wire::show(&message));
                self.step.returns.entry(channel).or_default().push(text);
            }
            Told::Confirmed { channel, tag, multiple, is_ack } => {
                self.confirmed(channel, tag, multiple, is_ack);
            }
            Told::Cancelled { channel, consumer } => {
                self.step.cancelled.insert(format!("@{channel} {consumer}"));
            }
            Told::ChannelClosed { channel, code, text, method } => {
                let (class, id) = method;
                self.step.closes.push(format!("channel closed: {code} {text} ({class} {id})"));
                self.channels.remove(&channel);
                if let Some(wire) = &mut self.site.wires[link] {
                    wire.send(channel, &Method::ChannelCloseOk(channel::CloseOk));
                    // Only then does the broker take back what the channel held.
                    let _ = wire.flush();
                }
            }
            Told::ConnectionClosed { code, text, method } => {
                let (class, id) = method;
                self.step.closes.push(format!("connection closed: {code} {text} ({class} {id})"));
                if let Some(wire) = &mut self.site.wires[link] {
                    wire.send(0, &Method::ConnectionCloseOk(connection::CloseOk));
                    // The broker may have hung up already.
                    let _ = wire.next(Instant::now());
                }
                self.lost(link);
            }
        }
    }

    fn hold(&mut self, channel: u16, source: &str, tag: u64) {
        let step = self.steps;
        if let Some(channel) = self.channels.get_mut(&channel)
            && !channel.unheld.contains(source)
        {
            channel.held.push(Held { source: source.to_owned(), tag, step });
        }
    }

    fn confirmed(&mut self, channel: u16, tag: u64, multiple: bool, is_ack: bool) {
        let Some(open) = self.channels.get_mut(&channel) else { return };
        let tags: Vec<u64> = if multiple {
            open.unconfirmed.range(..=tag).map(|(tag, _)| *tag).collect()
        } else {
            vec![tag]
        };
        for tag in tags {
            match open.unconfirmed.remove(&tag) {
                Some(name) if is_ack => drop(self.step.acked.insert(name)),
                Some(name) => drop(self.step.nacked.insert(name)),
                None => self.step.closes.push(format!("{tag} is confirmed twice or too early")),
            }
        }
    }

    /// A queue that a client declared is asked from now on.
    pub(super) fn watch(&mut self, name: String, link: usize) {
        let queue = self.queues.entry(name).or_insert(Queue { link, counts: None, noted: None });
        queue.link = link;
    }
}

/// Whether it may set messages in motion: into a queue, where they may expire, or out of one.
fn may_move(verb: Verb) -> bool {
    match verb {
        Verb::Publish
        | Verb::Ack
        | Verb::Nack
        | Verb::Reject
        | Verb::Recover
        | Verb::Commit
        | Verb::Cancel
        | Verb::Consume
        | Verb::Get
        | Verb::Purge
        | Verb::DeleteQueue
        | Verb::Close
        | Verb::Disconnect
        | Verb::Policy
        | Verb::DeletePolicy => true,
        Verb::Exchange
        | Verb::DeleteExchange
        | Verb::BindExchange
        | Verb::UnbindExchange
        | Verb::Queue
        | Verb::Bind
        | Verb::Unbind
        | Verb::Confirm
        | Verb::Qos
        | Verb::Tx
        | Verb::Rollback
        | Verb::Pause
        | Verb::Grant
        | Verb::Topics
        | Verb::ClearTopics => false,
    }
}

/// Whether messages may go back to their queues, which a broker may do in the background.
fn gives_back(verb: Verb) -> bool {
    let verbs = [Verb::Nack, Verb::Reject, Verb::Recover, Verb::Close, Verb::Disconnect];
    verbs.contains(&verb)
}

/// A message's name: its body without the filling.
fn name_of(body: &[u8]) -> String {
    String::from_utf8_lossy(body).trim_end_matches('.').to_owned()
}
