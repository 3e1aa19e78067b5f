//! Dead letters on their way into the log of where they go: batches by group, kept until they are
//! answered, so that what was not taken is sent again, in order.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cluster::{Request, Ticket};
use machine::{Attributes, Batch, Catalog, GroupId, QueueId};

use super::limits::{LETTER_BYTES_HELD_MAX, LETTER_BYTES_MAX};
use super::tickets::Tickets;

/// What a message is taken to cost in a batch, besides its head and body.
const MESSAGE_BYTES: usize = 32;

/// The number of a run of dead messages.
pub(super) type RunNumber = u64;

/// Messages of runs for one group.
#[derive(Clone, Debug, Default)]
struct PendingAppend {
    batch: Batch,
    /// Of heads and bodies, and what a message costs besides.
    bytes: usize,
    /// Whose messages it holds, each once.
    runs: Vec<RunNumber>,
    /// What they are for.
    queues: BTreeSet<QueueId>,
}

impl PendingAppend {
    /// Whether there is nothing any more that it could be for.
    fn is_void(&self, catalog: &Catalog) -> bool {
        self.queues.iter().all(|queue| catalog.queue_by_id(*queue).is_none())
    }
}

/// One group that letters go to.
#[derive(Debug, Default)]
struct Way {
    /// Full, and not sent yet.
    full: Vec<PendingAppend>,
    /// May take more.
    open: PendingAppend,
    /// What was not taken, and what waits behind it: by order.
    held: BTreeMap<u64, PendingAppend>,
    /// The group did not take something: until then nothing is sent.
    rests_until: Option<Duration>,
}

/// What was asked and is not answered.
#[derive(Debug)]
struct Sent {
    group: GroupId,
    /// Grows with every append.
    order: u64,
    append: PendingAppend,
}

/// All batches.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// Of one batch: past it the next message begins another.
    append_bytes: usize,
    ways: BTreeMap<GroupId, Way>,
    /// Ways with something that was not sent.
    touched: BTreeSet<GroupId>,
    sent: BTreeMap<Ticket, Sent>,
    orders: u64,
    /// Of batches that are gathered or sent.
    moving_bytes: usize,
    /// Of batches that are held.
    held_bytes: usize,
}

impl Outgoing {
    pub(super) fn new(append_bytes: usize) -> Self {
        Self {
            append_bytes,
            ways: BTreeMap::new(),
            touched: BTreeSet::new(),
            sent: BTreeMap::new(),
            orders: 0,
            moving_bytes: 0,
            held_bytes: 0,
        }
    }

    /// Whether there is so much on its way that no more is to be added.
    pub(super) fn is_full(&self) -> bool {
        self.moving_bytes >= LETTER_BYTES_MAX || self.held_bytes >= LETTER_BYTES_HELD_MAX
    }

    /// Whether nothing is asked that is not answered.
    pub(super) fn is_quiet(&self) -> bool {
        self.sent.is_empty()
    }

    /// When something is to be sent again.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.ways.values().filter_map(|way| way.rests_until).min()
    }

    /// Adds a message. True: of its run nothing was in that append before.
    pub(super) fn add(
        &mut self,
        run: RunNumber,
        (group, attributes, queues): (GroupId, &Attributes, &[QueueId]),
        head: &[u8],
        body: &[u8],
    ) -> bool {
        let way = self.ways.entry(group).or_default();
        self.touched.insert(group);
        if way.open.bytes >= self.append_bytes {
            way.full.push(std::mem::take(&mut way.open));
        }
        way.open.batch.enqueue_with(queues, attributes, &[head], body);
        way.open.queues.extend(queues.iter().map(|queue| queue.base()));
        let bytes = head.len() + body.len() + MESSAGE_BYTES;
        way.open.bytes += bytes;
        self.moving_bytes += bytes;
        let is_new = way.open.runs.last() != Some(&run);
        if is_new {
            way.open.runs.push(run);
        }
        is_new
    }

    /// Sends what is gathered, but to groups that rest.
    pub(super) fn flush(&mut self, tickets: &mut Tickets, requests: &mut Vec<Request>) {
        for group in std::mem::take(&mut self.touched) {
            let Some(way) = self.ways.get_mut(&group) else { continue };
            let mut appends = std::mem::take(&mut way.full);
            appends.push(std::mem::take(&mut way.open));
            for append in appends {
                let order = self.orders;
                self.orders += 1;
                if way.rests_until.is_some() {
                    self.moving_bytes -= append.bytes;
                    self.held_bytes += append.bytes;
                    way.held.insert(order, append);
                } else {
                    let sent = Sent { group, order, append };
                    self.sent.insert(ask(&sent, tickets, requests), sent);
                }
            }
        }
    }

    /// An append is logged: the runs that waited for it.
    pub(super) fn logged(&mut self, ticket: Ticket) -> Vec<RunNumber> {
        let Some(sent) = self.sent.remove(&ticket) else { return Vec::new() };
        self.moving_bytes -= sent.append.bytes;
        sent.append.runs
    }

    /// An append is not known to be logged: it, and what follows it, is sent again at `again`, unless its
    /// queues are gone. Gives the runs that wait for it no more; none: it was not asked for.
    pub(super) fn refused(
        &mut self,
        ticket: Ticket,
        catalog: &Catalog,
        again: Duration,
    ) -> Option<Vec<RunNumber>> {
        let Sent { group, order, append } = self.sent.remove(&ticket)?;
        self.moving_bytes -= append.bytes;
        if append.is_void(catalog) {
            return Some(append.runs);
        }
        self.held_bytes += append.bytes;
        let way = self.ways.entry(group).or_default();
        way.held.insert(order, append);
        way.rests_until = way.rests_until.or(Some(again));
        Some(Vec::new())
    }

    /// Sends again what is due, and says how many appends that are.
    pub(super) fn wake(
        &mut self,
        now: Duration,
        tickets: &mut Tickets,
        requests: &mut Vec<Request>,
    ) -> u64 {
        let mut count = 0;
        for (group, way) in &mut self.ways {
            if way.rests_until.is_none_or(|until| until > now) {
                continue;
            }
            way.rests_until = None;
            for (order, append) in std::mem::take(&mut way.held) {
                self.held_bytes -= append.bytes;
                self.moving_bytes += append.bytes;
                let sent = Sent { group: *group, order, append };
                self.sent.insert(ask(&sent, tickets, requests), sent);
                count += 1;
            }
        }
        count
    }
}

fn ask(sent: &Sent, tickets: &mut Tickets, requests: &mut Vec<Request>) -> Ticket {
    let ticket = tickets.issue();
    let (group, batch) = (sent.group, sent.append.batch.clone());
    requests.push(Request::Append { group, ticket, batch, settles: Vec::new() });
    ticket
}
