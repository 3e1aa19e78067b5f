//! What a queue that refuses messages has said of those that waited for it.

use machine::{Outcome, Overflow, QueueId};

use crate::capacity::{Guarded, Then};
use crate::channel::Mode;
use crate::connection::tickets::ChannelRef;
use crate::connection::{Trunk, Turn};
use crate::dead_letter::{self, Forwarded};
use crate::route_cache::Route;
use crate::session::{Session, find};

impl Session {
    /// The queue has room for all that was asked about but those at the places in `refused`. None: it cannot
    /// say, and takes none.
    pub(crate) fn admitted(
        &mut self,
        turn: &mut Turn<'_>,
        queue: QueueId,
        refused: Option<&[u32]>,
    ) {
        let Some((group, messages)) = self.trunk.guards.answered(queue) else { return };
        let mut is_refused = vec![refused.is_none(); messages.len()];
        for place in refused.unwrap_or_default() {
            if let Some(is_refused) = is_refused.get_mut(*place as usize) {
                *is_refused = true;
            }
        }
        let found = turn.view.catalog.queue_by_id(queue);
        let overflow = found
            .and_then(|queue| queue.settings().features)
            .map_or(Overflow::RejectPublish, |features| features.overflow);
        for (message, is_refused) in messages.into_iter().zip(is_refused) {
            if is_refused {
                self.trunk.counts.refused += 1;
                if overflow == Overflow::RejectPublishDlx && refused.is_some() {
                    self.trunk.send_on(turn, &message);
                }
            }
            let Guarded { lane, attributes, head, body, then } = &message;
            match (*then, is_refused) {
                (Then::Append(run), false) => {
                    let Trunk { appends, tickets, .. } = &mut self.trunk;
                    appends.make_room(1, tickets, &mut turn.out.requests);
                    let slot = appends.enqueue(group, &[*lane], attributes, &[head], body);
                    if let Some((at, run)) = run {
                        appends.remember(slot, at, run);
                    }
                }
                (Then::Append(Some((at, run))), true) => self.confirm(at, run, false),
                (Then::Append(None), true) => {}
                (Then::Commit(at), _) => {
                    let Some(channel) = find(&mut self.channels, at) else { continue };
                    let message = (!is_refused).then_some(&message);
                    if let Err(failure) = channel.admitted(&mut self.trunk, turn, group, message) {
                        self.fail(turn, &failure);
                    }
                }
            }
        }
    }

    /// A part of a run of publishes is logged, or will not be.
    pub(crate) fn confirm(&mut self, at: ChannelRef, run: u64, is_logged: bool) {
        let Some(channel) = find(&mut self.channels, at) else { return };
        let Mode::Confirm(confirms) = &mut channel.mode else { return };
        confirms.answered(run, is_logged);
        if !channel.is_touched {
            channel.is_touched = true;
            self.trunk.touched.push(at.number);
        }
    }
}

impl Trunk {
    /// A refused message goes where its queue sends what is dead. Its publisher is told that it was refused,
    /// whatever comes of this.
    fn send_on(&mut self, turn: &mut Turn<'_>, message: &Guarded) {
        let (catalog, time_ms) = (turn.view.catalog, self.time.ms_at(turn.now));
        let mut letter = Forwarded::default();
        let (queue, head) = (message.lane.base(), &message.head);
        dead_letter::forward(catalog, queue, Outcome::Overflowed, time_ms, head, &mut letter);
        let route = Route::of(&letter.targets);
        self.put(turn, &route, &letter.asked, &[&letter.head], &message.body, None);
    }
}
