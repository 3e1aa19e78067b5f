//! What this node's sessions have in a group, and how it gets to whoever leads the group.

use machine::{Batch, CatalogCommand, GroupId, NodeId};

use super::Shard;
use crate::exchange::{Input, Now, Output};
use crate::group::Group;
use crate::inbox::{Taken, Verdict};
use crate::limits::{ENTRY_BYTES, LEADERLESS_MS, MINORITY_MS, REJOIN_MS};
use crate::numbered_batches::NumberedBatches;
use crate::peer::message::Message;
use crate::remote::{Remote, Route};
use crate::request::{Answer, Held};
use crate::unlogged_settles::UnloggedSettles;
use crate::waiter::Waiter;

/// This node as the producer of what a group is asked.
pub(super) struct Outbound {
    pub(super) batches: NumberedBatches,
    pub(super) remote: Remote,
    /// What a leader elsewhere may not have logged yet.
    pub(super) unlogged_settles: UnloggedSettles,
    /// Since when no leader can be had, or none that has a majority.
    stuck_since_ms: Option<u64>,
    /// That was long ago: what sessions ask is refused at once.
    pub(super) is_refusing: bool,
    /// When a leader was joined last.
    joined_ms: u64,
    /// The last leader that was joined and said that it is none.
    pub(super) denial: Option<Denial>,
}

/// A leader that was joined says that it is none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Denial {
    pub(super) by: Route,
    /// It is not joined again before.
    pub(super) until_ms: u64,
}

/// What can be expected of a group.
enum Outlook {
    /// It answers what it is asked.
    Good,
    /// Its leader was asked, and will say how it stands.
    Open,
    /// It answers when a leader or a majority is back.
    Bad,
}

impl Outbound {
    /// Puts the settles that the last leader may not have logged into numbered batches, for the next leader.
    pub(super) fn log_settles_again(&mut self, now: Now) {
        if planted::is("settles_not_told") {
            return;
        }
        for batch in self.unlogged_settles.take(now.mono_ms) {
            self.batches.add(now.wall_ms, batch, Waiter::Nobody, Vec::new());
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.batches.is_empty() && !self.remote.is_asking()
    }

    /// A leader elsewhere knows whether it has a majority, and one that is none says so at once. To give up what
    /// it was asked would leave it with consumers that nobody here knows of.
    fn outlook(&self, now_ms: u64, has_majority: bool) -> Outlook {
        match self.remote.route {
            Route::Here if has_majority => Outlook::Good,
            Route::Here | Route::Nowhere => Outlook::Bad,
            Route::There { .. } if now_ms >= self.joined_ms + 3 * REJOIN_MS => Outlook::Good,
            // It said no before, and the same again is to be expected.
            by if self.denial.is_some_and(|denial| denial.by == by) => Outlook::Bad,
            Route::There { .. } if has_majority => Outlook::Good,
            Route::There { .. } => Outlook::Open,
        }
    }

    /// Bytes that wait for a majority, where this node leads.
    pub(super) fn bytes_here(&self) -> usize {
        self.batches.bytes() - self.bytes_away()
    }

    /// Bytes that wait for a leader on another node, or for any.
    pub(super) fn bytes_away(&self) -> usize {
        match self.remote.route {
            Route::Here => 0,
            Route::There { .. } | Route::Nowhere => self.batches.bytes(),
        }
    }
}

impl Shard {
    pub(super) fn outbound(&mut self, group: GroupId) -> &mut Outbound {
        let producer = self.producer();
        let entry_bytes = ENTRY_BYTES.min(self.sizes.append_bytes);
        self.out.entry(group).or_insert_with(|| Outbound {
            batches: NumberedBatches::new(producer, entry_bytes),
            remote: Remote::new(),
            unlogged_settles: UnloggedSettles::default(),
            stuck_since_ms: None,
            is_refusing: false,
            joined_ms: 0,
            denial: None,
        })
    }

    /// Appends for a session of this node, or for the node itself.
    pub(super) fn append(
        &mut self,
        now: Now,
        group: GroupId,
        batch: Batch,
        settles: Vec<Held>,
        waiter: Waiter,
        outputs: &mut Vec<Output>,
    ) {
        if self.is_local_here(group) {
            return self.apply_local(now, batch, &settles, waiter, outputs);
        }
        let bytes = batch.bytes();
        if bytes > self.sizes.batch_bytes {
            return outputs.extend(waiter.refused());
        }
        let out = self.outbound(group);
        let waiter = if out.is_refusing && waiter.session().is_some() {
            let lasts = waiter.lasts();
            outputs.extend(waiter.refused());
            if !lasts {
                return;
            }
            // Nobody waits for it any more, and it has to be done all the same.
            Waiter::Nobody
        } else {
            waiter
        };
        self.outbound(group).batches.add(now.wall_ms, batch, waiter, settles);
        self.gathered(now, bytes, outputs);
    }

    /// Changes the catalog; in shard 0.
    pub(super) fn change(
        &mut self,
        now: Now,
        command: &CatalogCommand,
        waiter: Waiter,
        outputs: &mut Vec<Output>,
    ) {
        let mut batch = Batch::new();
        batch.catalog(command);
        self.append(now, GroupId::CATALOG, batch, Vec::new(), waiter, outputs);
    }

    pub(super) fn send_all_numbered(&mut self, now: Now, outputs: &mut Vec<Output>) {
        let groups: Vec<GroupId> = self.out.keys().copied().collect();
        for group in groups {
            self.send_numbered(now, group, outputs);
        }
    }

    /// Gives the leader of `group` the numbered batches that it was not given.
    pub(super) fn send_numbered(&mut self, now: Now, group: GroupId, outputs: &mut Vec<Output>) {
        let Some(out) = self.out.get_mut(&group) else { return };
        let route = out.remote.route;
        if route == Route::Nowhere {
            return;
        }
        out.batches.close(now.wall_ms);
        let mut proposed = 0;
        loop {
            let Some(out) = self.out.get_mut(&group) else { return };
            let (producer, epoch) = (out.batches.producer(), out.remote.epoch());
            let Some(numbered) = out.batches.next_to_send() else { return };
            let (seq, needs_apply) = (numbered.seq, numbered.needs_apply);
            let (commands, settles) = (numbered.commands.clone(), numbered.settles.clone());
            let bytes = commands.len();
            match route {
                Route::There { node, .. } => {
                    // The bytes are kept for another leader; the ready made entry is not needed.
                    numbered.entry = None;
                    let message = Message::NumberedBatch {
                        group,
                        epoch,
                        boot: producer.boot,
                        seq,
                        commands,
                        settles,
                        needs_apply,
                    };
                    self.send(node, message, outputs);
                }
                Route::Here => {
                    let entry = numbered.entry.take();
                    let taken = Taken { producer, seq, needs_apply, settles };
                    let verdict = match (&mut self.catalog, self.groups.get_mut(&group)) {
                        (_, Some(found)) => found.take(now, taken, &commands, entry),
                        (Some(catalog), None) if group == GroupId::CATALOG => {
                            catalog.take(now.wall_ms, taken, &commands, entry)
                        }
                        (_, None) => Err(taken),
                    };
                    let Some(out) = self.out.get_mut(&group) else { return };
                    match verdict {
                        Ok(Verdict::Propose | Verdict::Ignore) => {
                            proposed += bytes;
                            if proposed > self.sizes.append_bytes {
                                // The rest is for the next append.
                                self.own.push_back(Input::TimePassed);
                                return;
                            }
                        }
                        Ok(Verdict::Applied) => {
                            let waiters = out.batches.committed(seq);
                            outputs.extend(waiters.into_iter().filter_map(Waiter::committed));
                        }
                        Err(_) => {
                            out.batches.unsend(seq);
                            return;
                        }
                    }
                }
                Route::Nowhere => return,
            }
        }
    }

    /// The group's leader says that numbered batches up to `seq` are on a majority's disks.
    pub(super) fn numbered_committed(
        &mut self,
        group: GroupId,
        seq: u64,
        outputs: &mut Vec<Output>,
    ) {
        // A change of the catalog is answered once this node has applied it.
        if group == GroupId::CATALOG {
            return;
        }
        let Some(out) = self.out.get_mut(&group) else { return };
        let waiters = out.batches.committed(seq);
        outputs.extend(waiters.into_iter().filter_map(Waiter::committed));
    }

    /// Finds out who leads `group` now, and goes there if that is new.
    pub(super) fn route(&mut self, now: Now, group: GroupId, outputs: &mut Vec<Output>) {
        if self.is_local_here(group) {
            return;
        }
        let wanted = self.leader_of(group);
        let out = self.outbound(group);
        if out.remote.route == wanted {
            return;
        }
        match wanted {
            Route::Here => self.take_over(now, group, outputs),
            Route::There { node, term } => {
                let is_soon = |last: Denial| last.by == wanted && now.mono_ms < last.until_ms;
                if out.denial.is_some_and(is_soon) {
                    out.remote.route = Route::Nowhere;
                } else {
                    self.join(now, group, node, term, outputs);
                }
            }
            Route::Nowhere => out.remote.route = Route::Nowhere,
        }
    }

    pub(super) fn leader_of(&mut self, group: GroupId) -> Route {
        let there = |shard: &Self, node: NodeId, term| {
            if shard.peers.is_up(node) { Route::There { node, term } } else { Route::Nowhere }
        };
        if let Some(node) = group.local_node() {
            return there(self, node, 0);
        }
        let me = self.me.node;
        let is_catalog = group == GroupId::CATALOG;
        // Queues are here not only while it serves: to leave before consumers are handed over would be to tell the
        // next leader of none, and to lose the credit that comes for them.
        let is_led = |found: &Group| if is_catalog { found.serves() } else { found.is_in_charge() };
        let is_here = self.group(group).is_some_and(is_led);
        if is_here {
            return Route::Here;
        }
        let is_dismissed = self.is_dismissed(group);
        let replica = self.replica(group).filter(|_| !is_dismissed);
        let (followed, term) =
            replica.map_or((None, 0), |replica| (replica.leader(), replica.term()));
        // A replica that the group does not count on any more hears nothing of its leaders, and may follow one of
        // before for a while. Leaders say to all nodes that they lead.
        let announced = self.peers.leader(group).filter(|(later, _)| *later >= term);
        let is_outdated = announced.is_some_and(|(later, _)| later > term);
        let followed = followed.map(|node| (term, node)).filter(|_| !is_outdated);
        match followed.into_iter().chain(announced).find(|(_, node)| *node != me) {
            Some((term, node)) => there(self, node, term),
            None => Route::Nowhere,
        }
    }

    /// Tells a leader that is new all that this node's sessions have and want in its group. Numbered batches
    /// come first: what they settle is not to be delivered.
    fn join(
        &mut self,
        now: Now,
        group: GroupId,
        node: NodeId,
        term: u64,
        outputs: &mut Vec<Output>,
    ) {
        let out = self.outbound(group);
        let attachments = out.remote.join(node, term);
        out.joined_ms = now.mono_ms;
        let epoch = out.remote.epoch();
        out.batches.rewind();
        out.log_settles_again(now);
        self.send_numbered(now, group, outputs);
        if group == GroupId::CATALOG {
            return;
        }
        self.send(node, Message::Join { group, epoch, attachments }, outputs);
        self.refuse_asked(group, node, outputs);
        let asked: Vec<_> = self.outbound(group).remote.asked().collect();
        for (session, request) in asked {
            let requests = vec![self.readable(node, request)];
            self.send(node, Message::Requests { group, epoch, session, requests }, outputs);
        }
    }

    /// Answers sessions with a failure where a group has had no leader or no majority for too long.
    pub(super) fn give_up_where_stuck(&mut self, now: Now, outputs: &mut Vec<Output>) {
        let groups: Vec<GroupId> = self.out.keys().copied().collect();
        for group in groups {
            let has_majority = self.has_majority(group);
            let Some(out) = self.out.get_mut(&group) else { continue };
            match out.outlook(now.mono_ms, has_majority) {
                Outlook::Good => {
                    out.stuck_since_ms = None;
                    out.is_refusing = false;
                    continue;
                }
                Outlook::Open => continue,
                Outlook::Bad => {}
            }
            let since = *out.stuck_since_ms.get_or_insert(now.mono_ms);
            let timeout = if has_majority { LEADERLESS_MS } else { MINORITY_MS };
            if now.mono_ms < since + timeout {
                continue;
            }
            out.is_refusing = true;
            // If it is one after all, it is joined anew, and hears what is left.
            if let Route::There { .. } = out.remote.route {
                out.remote.route = Route::Nowhere;
            }
            let waiters = out.batches.give_up(now.wall_ms);
            let asked = out.remote.give_up();
            outputs.extend(waiters.into_iter().filter_map(Waiter::refused));
            for (session, ticket) in asked {
                outputs.push(Output::Answer { session, answer: Answer::AppendFailed { ticket } });
            }
        }
    }

    /// Whether a majority of a group's voters can be reached, this node among them: until a change of members is over,
    /// one of the old and one of the new. Where no replica here knows them, those are meant that the catalog wants.
    pub(super) fn has_majority(&mut self, group: GroupId) -> bool {
        let me = self.me.node;
        if let Some(node) = group.local_node() {
            return node == me || self.peers.is_up(node);
        }
        let is_reached = |shard: &Self, node: NodeId| node == me || shard.peers.is_up(node);
        let is_dismissed = self.is_dismissed(group);
        let Some(replica) = self.replica(group).filter(|_| !is_dismissed) else {
            return match self.members.voters(group) {
                Some(voters) => has_most(voters, |node| is_reached(self, node)),
                None => self.peers.has_most(self.members.nodes().filter(|node| *node != me)),
            };
        };
        let members = replica.log().members();
        let nodes = |ids: &[u64]| ids.iter().map(|id| NodeId(*id)).collect::<Vec<_>>();
        let (new, old) = (nodes(&members.voters), nodes(&members.voters_outgoing));
        let has_most = |of: &[NodeId]| has_most(of, |node| is_reached(self, node));
        has_most(&new) && (old.is_empty() || has_most(&old))
    }
}

fn has_most(of: &[NodeId], is_reached: impl Fn(NodeId) -> bool) -> bool {
    of.iter().filter(|node| is_reached(**node)).count() * 2 > of.len()
}
