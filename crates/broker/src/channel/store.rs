//! Where messages are put: into the batches of their groups, into a transaction, or behind the question whether
//! their queue has room.

use machine::{Attributes, QueueId};

use crate::attributes::Asked;
use crate::capacity::{Guarded, Then};
use crate::channel::publish::Message;
use crate::channel::{Channel, Mode};
use crate::connection::tickets::ChannelRef;
use crate::connection::{Trunk, Turn};
use crate::errors::Failure;
use crate::limits;
use crate::route_cache::Route;

impl Channel {
    /// Stores a message where its own route says, or the known one at `place`.
    #[inline]
    pub(crate) fn store(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        own_route: Option<&Route>,
        place: usize,
        asked: &Asked,
        message: Message<'_>,
    ) -> Result<(), Failure> {
        let route = own_route.unwrap_or_else(|| trunk.routes.at(place));
        let head = [message.destination, message.properties];
        let is_routed = route.is_routed;
        let is_counted = route.is_guarded
            || asked.cancels.is_some()
            || route.parts_max() > limits::APPEND_SLOTS_MAX;
        let mut slots = 0;
        if let Mode::Tx(tx) = &mut self.mode {
            trunk.counts.cancels += u64::from(asked.cancels.is_some());
            let before = tx.bytes;
            tx.store(route, asked, &head, message.body, &mut trunk.lanes)?;
            trunk.tx_bytes += tx.bytes - before;
        } else if is_counted && !route.is_empty() {
            let route = route.clone();
            self.store_counted(trunk, turn, &route, asked, message);
            return Ok(());
        } else {
            let appends = &mut trunk.appends;
            let (tickets, requests) = (&mut trunk.tickets, &mut turn.out.requests);
            appends.make_room(route.parts_max(), tickets, requests);
            if route.is_plain() {
                let attributes = asked.attributes(false);
                for (group, queues) in &route.groups {
                    slots |= appends.enqueue(*group, queues, &attributes, &head, message.body);
                }
            } else {
                route.parts(asked, &mut trunk.lanes, |group, attributes, queues| {
                    slots |= appends.enqueue(group, queues, attributes, &head, message.body);
                });
            }
        }
        self.conclude(trunk, turn, slots, is_routed, &message);
        Ok(())
    }

    /// What goes into more batches than are gathered for at once, has to be asked for, or cancels: its
    /// confirm counts its parts.
    fn store_counted(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        route: &Route,
        asked: &Asked,
        message: Message<'_>,
    ) {
        let head = [message.destination, message.properties];
        let cancelled = asked.cancels.map(|key| (key, route.queues()));
        let mut lanes = std::mem::take(&mut trunk.lanes);
        let parts = match &cancelled {
            Some((_, groups)) => groups.len(),
            None => {
                let mut parts = route.guarded().count();
                route.parts(asked, &mut lanes, |_, _, _| parts += 1);
                parts
            }
        };
        let run = match &mut self.mode {
            Mode::Confirm(confirms) => {
                let parts = u32::try_from(parts).expect("routing bounds the queues of a message");
                Some(confirms.expect_wide(parts))
            }
            Mode::Plain | Mode::Tx(_) => None,
        };
        let run = run.map(|run| (self.at, run));
        trunk.lanes = lanes;
        let Some((key, groups)) = cancelled else {
            trunk.put(turn, route, asked, &head, message.body, run);
            return;
        };
        trunk.counts.cancels += 1;
        for (group, queues) in groups {
            trunk.appends.make_room(1, &mut trunk.tickets, &mut turn.out.requests);
            let slot = trunk.appends.cancel(group, &queues, key);
            if let Some((at, run)) = run {
                trunk.appends.remember(slot, at, run);
            }
        }
    }
}

impl Trunk {
    /// Puts a message into batches of any number, or behind the questions it needs. Each part counts for the
    /// run of confirms.
    pub(crate) fn put(
        &mut self,
        turn: &mut Turn<'_>,
        route: &Route,
        asked: &Asked,
        head: &[&[u8]],
        body: &[u8],
        run: Option<(ChannelRef, u64)>,
    ) {
        let appends = &mut self.appends;
        route.parts(asked, &mut self.lanes, |group, attributes, queues| {
            appends.make_room(1, &mut self.tickets, &mut turn.out.requests);
            let slot = appends.enqueue(group, queues, attributes, head, body);
            if let Some((at, run)) = run {
                appends.remember(slot, at, run);
            }
        });
        for target in route.guarded() {
            let attributes = asked.attributes(target.dedups);
            let message = guarded(asked.lane(target), attributes, head, body, Then::Append(run));
            self.guards.add(target.group, message);
        }
    }
}

/// A message that waits until its queue says whether there is room.
pub(crate) fn guarded(
    lane: QueueId,
    attributes: Attributes,
    head: &[&[u8]],
    body: &[u8],
    then: Then,
) -> Guarded {
    let head: Vec<u8> = head.concat();
    Guarded { lane, attributes, head: head.into(), body: body.into(), then }
}
