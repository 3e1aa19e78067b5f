//! The follower's side: what comes in, of all groups. Belongs to who owns the [`Keeper`].

use std::collections::BTreeMap;

use bytes::Bytes;
use machine::{GroupId, NodeId};
use wal::segments::SegmentMeta;
use wal::{Checkpoint, Disk, Error, Keeper, Live};

use super::chunk::{Chunk, Transfer};
use super::receiver::{Complete, Receiver, Trouble};
use super::{HAVE_MAX, STALE_MS};
use crate::checkpoint::{State, Stored};
use crate::peer::message::Message;

/// What is to be done about something that came in.
#[derive(Debug)]
pub enum Event {
    /// Say this to a node.
    Tell { to: NodeId, message: Message },
    /// Ask the group's core whether it takes this snapshot: [`Incoming::decide`].
    Arrived { group: GroupId, from: NodeId, index: u64, term: u64 },
}

/// A snapshot that is the group's checkpoint now.
#[derive(Debug)]
pub struct Installed {
    pub group: GroupId,
    pub index: u64,
    pub term: u64,
    pub state: State,
    pub stored: Vec<Stored>,
    /// The segments that the group has now.
    pub segments: Vec<SegmentMeta>,
    /// And those that it had.
    pub before: Vec<SegmentMeta>,
}

/// Snapshots that are not installed yet; at most one of a group.
///
/// ```text
///          offered                last chunk             the core takes it
///   none ───────────> Receiving ───────────────> Asked ───────────────────> Accepted ──installed──> none
///    ^                  │  ^ │ another offer       │ declined                  ^ │ full disk: tried again
///    │ refused, silent, │  └─┘                     │                           └─┘
///    │ full disk, the   │                          │
///    │ group is further │                          │
///    └──────────────────┴──────────────────────────┘
/// ```
pub struct Incoming<D: Disk> {
    under_way: BTreeMap<GroupId, UnderWay<D>>,
}

enum UnderWay<D: Disk> {
    Receiving {
        receiver: Box<Receiver<D>>,
        heard_ms: u64,
    },
    /// The group's core was asked.
    Asked(Complete),
    /// It has agreed, and does nothing until it is done.
    Accepted(Complete),
}

impl<D: Disk> Default for Incoming<D> {
    fn default() -> Self {
        Self { under_way: BTreeMap::new() }
    }
}

impl<D: Disk> Incoming<D> {
    /// Whether a snapshot is on its way that brings the group further than `index`: then the group's checkpoints have
    /// to wait. A snapshot that brings the group no further is given up here, because another leader may have brought
    /// the group so far, and the rest of the snapshot may never come.
    pub fn holds_back(&mut self, group: GroupId, index: u64, events: &mut Vec<Event>) -> bool {
        let Some(UnderWay::Receiving { receiver, .. }) = self.under_way.get(&group) else {
            return self.under_way.contains_key(&group);
        };
        if receiver.transfer.index > index {
            return true;
        }
        notify_done(receiver.from, &receiver.transfer, false, events);
        self.under_way.remove(&group);
        false
    }

    /// Takes a chunk that came from `from`. A full disk ends the transfer; any other error is one
    /// after which the log's owner must not go on.
    pub fn chunk(
        &mut self,
        now_ms: u64,
        keeper: &mut Keeper<D>,
        from: NodeId,
        chunk: &Bytes,
        events: &mut Vec<Event>,
    ) -> Result<(), Error> {
        self.forget_stale(now_ms);
        let (transfer, chunk) = match Chunk::decode(chunk) {
            Ok(decoded) => decoded,
            Err(refused) => {
                tracing::warn!(
                    node = from.0,
                    "dropped a malformed chunk of a snapshot: {refused}. The sender begins the snapshot again"
                );
                return Ok(());
            }
        };
        match chunk {
            Chunk::Offer => self.offer(now_ms, keeper, from, transfer, events),
            Chunk::Data { offset, bytes } => {
                let Some(mut receiver) = self.take(from, &transfer) else { return Ok(()) };
                if let Err(trouble) = receiver.data(Some(keeper), offset, &bytes) {
                    return give_up(from, &transfer, trouble, events);
                }
                let (group, index) = (transfer.group, transfer.index);
                let taken = Message::SnapshotTaken { group, index, bytes: receiver.offset() };
                events.push(Event::Tell { to: from, message: taken });
                let receiving = UnderWay::Receiving { receiver, heard_ms: now_ms };
                self.under_way.insert(group, receiving);
            }
            Chunk::End { offset, checksum } => {
                let Some(receiver) = self.take(from, &transfer) else { return Ok(()) };
                match receiver.end(offset, checksum) {
                    Ok(complete) => {
                        let Transfer { group, index, term, .. } = transfer;
                        self.under_way.insert(group, UnderWay::Asked(complete));
                        events.push(Event::Arrived { group, from, index, term });
                    }
                    Err(trouble) => return give_up(from, &transfer, trouble, events),
                }
            }
            // What a sender is told.
            Chunk::Want(_) | Chunk::Done { .. } => {}
        }
        Ok(())
    }

    /// The core's answer to [`Event::Arrived`].
    pub fn decide(&mut self, group: GroupId, index: u64, accept: bool, events: &mut Vec<Event>) {
        match self.under_way.remove(&group) {
            Some(UnderWay::Asked(complete)) if complete.transfer.index == index => {
                if accept {
                    self.under_way.insert(group, UnderWay::Accepted(complete));
                } else {
                    notify_done(complete.from, &complete.transfer, false, events);
                }
            }
            Some(other) => drop(self.under_way.insert(group, other)),
            None => {}
        }
    }

    /// Installs what was accepted. After a full disk it is to be asked again, until it is done: the
    /// core waits for it.
    pub fn install(
        &mut self,
        keeper: &mut Keeper<D>,
        events: &mut Vec<Event>,
    ) -> Result<Option<Installed>, Error> {
        let is_accepted = |under_way: &UnderWay<D>| matches!(under_way, UnderWay::Accepted(_));
        let found = self.under_way.iter().find(|(_, under_way)| is_accepted(under_way));
        let Some((&group, UnderWay::Accepted(complete))) = found else { return Ok(None) };
        let installed = install(keeper, complete)?;
        notify_done(complete.from, &complete.transfer, true, events);
        self.under_way.remove(&group);
        Ok(Some(installed))
    }

    fn offer(
        &mut self,
        now_ms: u64,
        keeper: &Keeper<D>,
        from: NodeId,
        transfer: Transfer,
        events: &mut Vec<Event>,
    ) {
        let group = transfer.group;
        let own = keeper.checkpoint(group.0);
        let is_busy = match self.under_way.get(&group) {
            Some(UnderWay::Asked(_) | UnderWay::Accepted(_)) => true,
            Some(UnderWay::Receiving { .. }) | None => false,
        };
        if is_busy || own.is_some_and(|own| own.index >= transfer.index) {
            return notify_done(from, &transfer, false, events);
        }
        if let Some(UnderWay::Receiving { receiver, .. }) = self.under_way.remove(&group)
            && receiver.from != from
        {
            // One of the two leads no more. Who sends in vain must hear of it: until it does, it sends nobody else anything.
            notify_done(receiver.from, &receiver.transfer, false, events);
        }
        let have = own.map(|own| have(&own.segments)).unwrap_or_default();
        let want = Chunk::Want(have.iter().map(|(queue, seq)| (*queue, *seq)).collect());
        let message = Message::Snapshot { group, chunk: want.encode(&transfer) };
        events.push(Event::Tell { to: from, message });
        let receiver = Box::new(Receiver::new(transfer, from, have));
        self.under_way.insert(group, UnderWay::Receiving { receiver, heard_ms: now_ms });
    }

    /// The receiver of a transfer, out of the map. `None`: it is over, or another's.
    fn take(&mut self, from: NodeId, transfer: &Transfer) -> Option<Box<Receiver<D>>> {
        match self.under_way.remove(&transfer.group)? {
            UnderWay::Receiving { receiver, .. }
                if receiver.transfer == *transfer && receiver.from == from =>
            {
                Some(receiver)
            }
            other => {
                self.under_way.insert(transfer.group, other);
                None
            }
        }
    }

    /// Lets go of transfers whose sender says nothing any more. To be called now and then: nobody else may ever
    /// send anything.
    pub fn forget_stale(&mut self, now_ms: u64) {
        self.under_way.retain(|_, under_way| match under_way {
            UnderWay::Receiving { heard_ms, .. } => now_ms < *heard_ms + STALE_MS,
            UnderWay::Asked(_) | UnderWay::Accepted(_) => true,
        });
    }
}

/// By queue, the first sequence number above all that the segments hold: what lives below it is in
/// them. Nothing if there are too many queues to say so.
fn have(segments: &[SegmentMeta]) -> BTreeMap<u64, u64> {
    let mut have = BTreeMap::new();
    for extent in segments.iter().flat_map(|meta| &meta.extents) {
        let first: &mut u64 = have.entry(extent.queue).or_default();
        *first = extent.last_seq.saturating_add(1).max(*first);
    }
    if have.len() > HAVE_MAX { BTreeMap::new() } else { have }
}

fn install<D: Disk>(keeper: &mut Keeper<D>, complete: &Complete) -> Result<Installed, Error> {
    let Transfer { group, index, term, .. } = complete.transfer;
    let before: Vec<SegmentMeta> =
        keeper.checkpoint(group.0).map(|own| own.segments.clone()).unwrap_or_default();
    let mut segments = Vec::new();
    if complete.has_rest {
        let ranges = |(queue, live): (&u64, &machine::Ranges)| (*queue, live.ranges().collect());
        let live: Live = complete.live.iter().map(ranges).collect();
        segments = keeper.compact(group.0, before.clone(), &live)?;
    }
    segments.extend(complete.segments.iter().cloned());
    let (state, named) = (complete.state.clone(), segments.clone());
    keeper.install(Checkpoint { group: group.0, index, term, state, segments: named })?;
    let stored = Stored::of(&segments);
    let state = State::decode(&complete.state).expect("it was decoded when it came");
    Ok(Installed { group, index, term, state, stored, segments, before })
}

/// Ends a transfer. What was written of it goes with its receiver.
fn give_up(
    from: NodeId,
    transfer: &Transfer,
    trouble: Trouble,
    events: &mut Vec<Event>,
) -> Result<(), Error> {
    let group = transfer.group.0;
    match trouble {
        Trouble::Refused(refused) => {
            tracing::warn!(
                node = from.0,
                group,
                "refused an incoming snapshot, its sender begins again: {refused}"
            );
        }
        Trouble::Disk(error) if error.is_full() => {
            tracing::warn!(
                node = from.0,
                group,
                "disk full: gave up an incoming snapshot, its sender begins again; free disk space: {error}"
            );
        }
        Trouble::Disk(error) => return Err(error),
    }
    notify_done(from, transfer, false, events);
    Ok(())
}

fn notify_done(from: NodeId, transfer: &Transfer, installed: bool, events: &mut Vec<Event>) {
    let chunk = Chunk::Done { installed }.encode(transfer);
    let message = Message::Snapshot { group: transfer.group, chunk };
    events.push(Event::Tell { to: from, message });
}
