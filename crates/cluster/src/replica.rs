//! One node's part in one group: the `raft` crate's `RawNode` and its log, and nothing of what the
//! entries mean.
//!
//! Appending is asynchronous: what [`Replica::ready`] hands out for writing counts as persisted only
//! after [`Replica::synced`]. Until then a follower says nothing of it to anybody; a leader sends its
//! entries at once and counts itself in only then.

use std::collections::VecDeque;

use bytes::Bytes;
use machine::{GroupId, NodeId};
use raft::eraftpb::{ConfChangeV2, ConfState, Entry, EntryType, HardState, Message, MessageType};
use raft::{Config, ProgressState, RawNode, StateRole};
use wal::{CommitBatch, EntryAt, Item, LostState, Place};

use crate::limits::{BATCH_BYTES_MAX, ENTRIES_READ, SUCCESSION_MS, TICK_MS};
use crate::raft_log::{RaftLog, Wanted, encode_hard_state};
use crate::rejoining::{self, Rejoining, ReplicaStatus};
use crate::{change, entry};

/// Ticks without a leader before an election, at least; see `limits::TICK_MS`.
const ELECTION_TICKS: usize = 10;
const _: () = assert!(
    SUCCESSION_MS >= 2 * ELECTION_TICKS as u64 * TICK_MS,
    "who led before has found out that it does not any more"
);
const HEARTBEAT_TICKS: usize = 2;
/// Bytes of entries in one message to a peer.
const MESSAGE_BYTES: u64 = 1 << 20;
/// Messages with entries on their way to one follower.
const MESSAGES_IN_FLIGHT: usize = 64;
/// Bytes that a leader takes before they are committed.
const UNCOMMITTED_BYTES: u64 = 256 << 20;
/// Bytes of committed entries taken in one go.
const COMMITTED_BYTES: u64 = 4 << 20;

/// Entries that change no members.
const NORMAL: EntryType = EntryType::EntryNormal;

/// One group's consensus on this node.
pub(crate) struct Replica {
    group: GroupId,
    node: NodeId,
    raw: RawNode<RaftLog>,
    /// What is being written: (append number, ready number).
    unsynced: VecDeque<(u64, u64)>,
    /// Messages that say what is being written, by append number.
    held_back: VecDeque<(u64, Vec<Message>)>,
    synced_hard_state: HardState,
    /// The append with a term or vote that is not on the disk yet.
    voting: Option<u64>,
    seed: u64,
    reads: u64,
    reading: VecDeque<(u64, Wanted)>,
    /// Who led before a snapshot was installed.
    before: Option<NodeId>,
    /// Something was forgotten, and is not made up for.
    rejoining: Option<Rejoining>,
    /// It is, and the log does not know yet.
    has_rejoined: bool,
    /// To be sent with what `raft` has to say.
    questions: Vec<Message>,
    /// Questions of [`Replica::ask_index`] that a majority has answered, by number, and the index.
    indexes: Vec<(u64, u64)>,
}

/// This node does not lead the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotLeader;

/// What a step of one replica brings.
#[derive(Debug, Default)]
pub(crate) struct Harvest {
    pub(crate) committed: Vec<Entry>,
    /// To be sent at once.
    pub(crate) messages: Vec<Message>,
}

impl Replica {
    /// A replica whose log is recovered and applied up to `applied`. `seed` decides when it runs for
    /// election.
    pub(crate) fn new(group: GroupId, node: NodeId, log: RaftLog, applied: u64, seed: u64) -> Self {
        let config = Config {
            id: node.0,
            election_tick: ELECTION_TICKS,
            heartbeat_tick: HEARTBEAT_TICKS,
            applied,
            max_size_per_msg: MESSAGE_BYTES,
            max_inflight_msgs: MESSAGES_IN_FLIGHT,
            check_quorum: true,
            pre_vote: true,
            max_uncommitted_size: UNCOMMITTED_BYTES,
            max_committed_size_per_ready: COMMITTED_BYTES,
            ..Config::default()
        };
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let raw = RawNode::new(&config, log, &logger).expect("a fixed and valid configuration");
        let synced_hard_state = raw.raft.hard_state();
        let mut replica = Self {
            group,
            node,
            raw,
            unsynced: VecDeque::new(),
            held_back: VecDeque::new(),
            synced_hard_state,
            voting: None,
            seed,
            reads: 0,
            reading: VecDeque::new(),
            before: None,
            rejoining: None,
            has_rejoined: false,
            questions: Vec::new(),
            indexes: Vec::new(),
        };
        replica.choose_timeout();
        replica
    }

    /// It has forgotten something that it had promised to remember.
    pub(crate) fn set_lost_state(&mut self, lost_state: LostState) {
        self.rejoining = Rejoining::new(lost_state);
    }

    /// Asks for leadership at once.
    pub(crate) fn campaign(&mut self) {
        if self.rejoining.is_some() {
            return;
        }
        // An error means that an election is not possible now; a later tick asks again.
        let _ = self.raw.campaign();
        self.choose_timeout();
    }

    /// Messages to peers have at most so many bytes of entries: each is one append there.
    pub(crate) fn bound_messages(&mut self, bytes: usize) {
        self.raw.raft.max_msg_size = MESSAGE_BYTES.min(bytes as u64);
    }

    pub(crate) fn tick(&mut self) {
        if self.rejoining.is_some() {
            // All that time would bring is an election.
            return;
        }
        self.raw.tick();
        self.choose_timeout();
    }

    /// A message of another replica.
    pub(crate) fn step(&mut self, mut message: Message) {
        // Proposals travel in numbered batches. A leader's `raft` would read a change of members in this one by
        // `protobuf`.
        if message.get_msg_type() == MessageType::MsgPropose {
            return;
        }
        if rejoining::is_question(&message) {
            self.begin_anew(&message);
            return;
        }
        if message.get_msg_type() == MessageType::MsgHeartbeat && self.has_lost(&message) {
            // The leader knows of entries that this replica had and has not any more. What it has instead, above
            // what it knows to be committed, may be what a leader before could not commit.
            message.commit = self.committed();
            match &mut self.rejoining {
                Some(rejoining) => rejoining.ask_again(),
                None => self.set_lost_state(LostState { log: true, vote: false }),
            }
        }
        if !self.may_take(&message) {
            return;
        }
        let Some(message) = Self::expected(message) else { return };
        // What does not fit the replica's state is to be ignored, says the crate by an error.
        let _ = self.raw.step(message);
        self.choose_timeout();
    }

    /// Whether a leader's heartbeat names as committed, and as acknowledged by this replica, what it does not have.
    fn has_lost(&self, heartbeat: &Message) -> bool {
        let (commit, term) = (heartbeat.commit, heartbeat.commit_term);
        let is_another = |own| own != term;
        commit > self.last_index()
            || (commit > self.committed()
                // 0: a program that does not say it.
                && term > 0
                && self.raw.raft.raft_log.term(commit).is_ok_and(is_another))
    }

    /// Whether `raft` may see a message, after what this replica has forgotten.
    fn may_take(&mut self, message: &Message) -> bool {
        let Some(mut rejoining) = self.rejoining.take() else { return true };
        let takes = rejoining.see(message, self.status());
        self.questions.extend(rejoining.question(message, self.status()));
        self.go_on_rejoining(rejoining);
        takes
    }

    fn go_on_rejoining(&mut self, mut rejoining: Rejoining) {
        if rejoining.is_over(self.status()) {
            tracing::info!(group = self.group.0, "replica caught up; it may vote again");
            self.has_rejoined = true;
        } else {
            self.rejoining = Some(rejoining);
        }
    }

    fn status(&self) -> ReplicaStatus<'_> {
        ReplicaStatus {
            node: self.node.0,
            term: self.term(),
            last_index: self.last_index(),
            voters: self.voters(),
        }
    }

    /// A follower has lost its log, or some of it: what is known of it does not hold any more. It is asked
    /// where it says that its log ends, for a snapshot that it has already would bring it nothing.
    fn begin_anew(&mut self, question: &Message) {
        if !self.is_leader() || question.term != self.term() {
            return;
        }
        let next_index = question.reject_hint.min(self.last_index()) + 1;
        if let Some(progress) = self.raw.raft.mut_prs().get_mut(question.from) {
            progress.matched = 0;
            progress.become_probe();
            progress.next_idx = next_index;
            self.questions.push(rejoining::answer(question));
        }
    }

    /// What other replicas have reason to send. `raft` trusts its messages and panics over some that
    /// they have not.
    fn expected(message: Message) -> Option<Message> {
        use MessageType as M;
        let is_expected = match message.get_msg_type() {
            M::MsgAppend
            | M::MsgAppendResponse
            | M::MsgRequestVote
            | M::MsgRequestVoteResponse
            | M::MsgRequestPreVote
            | M::MsgRequestPreVoteResponse
            | M::MsgHeartbeat
            | M::MsgHeartbeatResponse
            | M::MsgTransferLeader
            | M::MsgTimeoutNow => message.term > 0,
            _ => false,
        };
        is_expected.then_some(message)
    }

    /// `raft` draws timeouts by chance; a simulated cluster has none but its seed's.
    fn choose_timeout(&mut self) {
        let mut hash = self.seed ^ (u64::from(self.group.0) << 32) ^ (self.node.0 << 48);
        hash ^= self.raw.raft.term;
        // The finalizer of splitmix64.
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        hash ^= hash >> 31;
        let ticks = ELECTION_TICKS + (hash % ELECTION_TICKS as u64) as usize;
        self.raw.raft.set_randomized_election_timeout(ticks);
    }

    /// Leads no longer, as if nothing had been heard of a majority for long.
    pub(crate) fn step_down(&mut self) {
        if self.is_leader() {
            let term = self.term();
            self.raw.raft.become_follower(term, raft::INVALID_ID);
            self.choose_timeout();
        }
    }

    /// A leader that is no member any more hands over as soon as another is near. What it wrote before it went may be
    /// synced only now, and the `raft` crate panics if a leader that has no progress of its own hears of that.
    fn give_way_if_gone(&mut self) {
        if self.raw.raft.prs().get(self.node.0).is_none() {
            self.step_down();
        }
    }

    /// The leader can not be reached: it is not waited for.
    pub(crate) fn forget_leader(&mut self) {
        if self.raw.raft.state == StateRole::Follower {
            self.raw.raft.leader_id = raft::INVALID_ID;
        }
    }

    pub(crate) fn is_leader(&self) -> bool {
        self.raw.raft.state == StateRole::Leader
    }

    /// Whether votes for this node are being counted.
    pub(crate) fn is_candidate(&self) -> bool {
        self.raw.raft.state == StateRole::Candidate
    }

    /// Who leads, as far as this replica knows.
    pub(crate) fn leader(&self) -> Option<NodeId> {
        let leader = self.raw.raft.leader_id;
        (leader != raft::INVALID_ID).then_some(NodeId(leader))
    }

    pub(crate) fn term(&self) -> u64 {
        self.raw.raft.term
    }

    /// On a majority's disks, as far as this replica knows.
    pub(crate) fn committed(&self) -> u64 {
        self.raw.raft.raft_log.committed
    }

    /// On this node's disk.
    pub(crate) fn persisted(&self) -> u64 {
        self.raw.raft.raft_log.persisted
    }

    pub(crate) fn last_index(&self) -> u64 {
        self.raw.raft.raft_log.last_index()
    }

    /// Who votes.
    pub(crate) fn voters(&self) -> &[u64] {
        &self.log().members().voters
    }

    /// Whether this node votes.
    pub(crate) fn is_voter(&self) -> bool {
        self.voters().contains(&self.node.0)
    }

    /// Whether it may win an election: it votes, and has forgotten nothing.
    pub(crate) fn may_lead(&self) -> bool {
        self.is_voter() && self.rejoining.is_none()
    }

    /// How far behind the last entry `node` is, if this replica leads it and it takes entries. Whether it can be
    /// reached is not asked here: Raft forgets at each of its timeouts whom it heard, until the next heartbeat.
    pub(crate) fn lag(&self, node: NodeId) -> Option<u64> {
        let progress = self.raw.raft.prs().get(node.0)?;
        let lag = self.last_index().saturating_sub(progress.matched);
        // Raft goes on probing a replica that was out of reach until it takes an entry, which a quiet group has none
        // of: one that has everything lacks nothing.
        (progress.state == ProgressState::Replicate || lag == 0).then_some(lag)
    }

    /// The same, but of what a majority has on its disks: what is on its way to everybody does not count.
    pub(crate) fn lag_behind_majority(&self, node: NodeId) -> Option<u64> {
        self.lag(node)?;
        self.matched(node).map(|matched| self.committed().saturating_sub(matched))
    }

    /// The last entry that `node` is known to have on its disk, on the leader.
    pub(crate) fn matched(&self, node: NodeId) -> Option<u64> {
        self.raw.raft.prs().get(node.0).map(|progress| progress.matched)
    }

    /// Asks a majority whether this replica still leads: Raft's ReadIndex. Once it says so, [`Replica::take_indexes`] has
    /// an index under this number, and everything that was confirmed before the question is at that index or below.
    /// A question may be lost; it is asked again under another number.
    pub(crate) fn ask_index(&mut self, number: u64) {
        self.raw.read_index(number.to_le_bytes().to_vec());
    }

    /// The questions that were answered since.
    pub(crate) fn take_indexes(&mut self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.indexes)
    }

    /// Hands leadership to a replica that is near. A follower asks its leader to do so.
    pub(crate) fn transfer(&mut self, node: NodeId) {
        self.raw.transfer_leader(node.0);
    }

    pub(crate) fn is_transferring(&self) -> bool {
        self.raw.raft.lead_transferee.is_some()
    }

    /// Whether an entry of any size would be taken now: not by a leader that is no member any more, which hands over
    /// as soon as another is near.
    pub(crate) fn can_propose(&self) -> bool {
        let uncommitted = self.raw.raft.uncommitted_size() as u64;
        self.is_leader()
            && !self.is_transferring()
            && self.raw.raft.prs().get(self.node.0).is_some()
            && uncommitted + BATCH_BYTES_MAX as u64 <= UNCOMMITTED_BYTES
    }

    pub(crate) fn unreachable(&mut self, node: NodeId) {
        self.raw.report_unreachable(node.0);
    }

    /// Appends an entry, and says its index. It is committed, or lost with its leader, later.
    pub(crate) fn propose(&mut self, data: Bytes) -> Result<u64, NotLeader> {
        if !self.is_leader() {
            return Err(NotLeader);
        }
        let entry = Entry { data, ..Entry::default() };
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgPropose);
        message.from = self.node.0;
        message.set_entries(vec![entry].into());
        self.raw.raft.step(message).map_err(|_| NotLeader)?;
        Ok(self.last_index())
    }

    /// Proposes that others vote from now on. False: not now.
    pub(crate) fn propose_members(&mut self, change: ConfChangeV2) -> bool {
        self.is_leader() && self.raw.propose_conf_change(Vec::new(), change).is_ok()
    }

    /// Whether a change of members is under way, or may be.
    pub(crate) fn is_changing_members(&self) -> bool {
        self.raw.raft.has_pending_conf()
    }

    /// Nothing above `applied` is there any more, and nothing of that is being written.
    pub(crate) fn cut_tail(&mut self, applied: u64) {
        self.change_log(applied, RaftLog::cut_tail);
    }

    /// The group began with these voters. No entry of its log is applied yet.
    pub(crate) fn begin_with(&mut self, founders: &[NodeId]) {
        let voters = founders.iter().map(|node| node.0).collect();
        let members = ConfState { voters, ..ConfState::default() };
        self.change_log(0, |log| log.set_members(members));
    }

    /// Raft begins anew on the changed log, which is applied up to `applied`. What the replica forgot stays noted.
    fn change_log(&mut self, applied: u64, change: impl FnOnce(&mut RaftLog)) {
        let empty = RaftLog::new(HardState::default(), ConfState::default(), 0, 0);
        let mut log = std::mem::replace(self.raw.mut_store(), empty);
        change(&mut log);
        let rejoining = self.rejoining.take();
        self.replace_log(log, applied);
        self.rejoining = rejoining;
    }

    /// Another log takes the place of the one that it had. What it was told of sizes stays.
    fn replace_log(&mut self, log: RaftLog, applied: u64) {
        let message_bytes = self.raw.raft.max_msg_size;
        *self = Self::new(self.group, self.node, log, applied, self.seed);
        self.raw.raft.max_msg_size = message_bytes;
    }

    /// A committed entry changes who votes.
    pub(crate) fn apply_members(&mut self, entry: &Entry) -> &ConfState {
        let known = self.log().members();
        assert!(!known.voters.is_empty(), "voters change, and it is not known who voted before");
        // The leader wrote it; nothing is changed by what cannot be read.
        let change = change::read(&entry.data).unwrap_or_default();
        if let Ok(members) = self.raw.apply_conf_change(&change) {
            self.raw.mut_store().set_members(members);
        }
        self.log().members()
    }

    /// Moves what is to be written into `batch` (under `number`, with the indexes of the entries in
    /// `written`), and what is committed or to be sent into `harvest`. Says how many bytes are to be
    /// written.
    pub(crate) fn ready(
        &mut self,
        number: u64,
        batch: &mut CommitBatch,
        written: &mut Vec<(GroupId, u64)>,
        harvest: &mut Harvest,
    ) -> usize {
        let mut bytes = 0;
        harvest.messages.append(&mut self.questions);
        if std::mem::take(&mut self.has_rejoined) {
            batch.add(self.group.0, Item::Rejoined);
        }
        while self.raw.has_ready() {
            let mut ready = self.raw.ready();
            for read in ready.take_read_states() {
                if let Ok(number) = <[u8; 8]>::try_from(&read.request_ctx[..]) {
                    self.indexes.push((u64::from_le_bytes(number), read.index));
                }
            }
            let mut committed = ready.take_committed_entries();
            let has_members = committed.iter().any(|entry| entry.entry_type != NORMAL);
            harvest.committed.append(&mut committed);
            let mut messages = ready.take_messages();
            for message in &mut messages {
                if message.get_msg_type() == MessageType::MsgHeartbeat {
                    // Whoever has another entry there has forgotten this one.
                    let term = self.raw.raft.raft_log.term(message.commit);
                    message.commit_term = term.unwrap_or_default();
                }
            }
            harvest.messages.append(&mut messages);
            let entries = ready.take_entries();
            self.raw.mut_store().append(&entries);
            let hard_state = self.raw.raft.hard_state();
            // A vote or term must be synced; a commit index rides along with entries. With that of a change of
            // members nothing may follow for long: a group that does not know after a start that the change is
            // over still needs those who went.
            let voted = hard_state.term != self.synced_hard_state.term
                || hard_state.vote != self.synced_hard_state.vote;
            let committed = (has_members || !entries.is_empty())
                && !self.raw.store().is_alone()
                && hard_state.commit != self.synced_hard_state.commit;
            if voted {
                self.voting = Some(number);
            }
            if voted || committed {
                batch.add(self.group.0, Item::HardState(encode_hard_state(&hard_state)));
                self.raw.mut_store().set_hard_state(hard_state.clone());
                self.synced_hard_state = hard_state;
            }
            for entry in &entries {
                bytes += entry.data.len();
                written.push((self.group, entry.index));
                batch.add(self.group.0, item(entry));
            }
            let ready_number = ready.number();
            let promises = ready.take_persisted_messages();
            self.raw.advance_append_async(ready);
            if voted || !entries.is_empty() {
                match self.unsynced.back_mut() {
                    Some(last) if last.0 == number => last.1 = ready_number,
                    _ => self.unsynced.push_back((number, ready_number)),
                }
            } else if self.unsynced.is_empty() {
                self.raw.on_persist_ready(ready_number);
            }
            self.hold_back(promises, harvest);
            self.check_indexes();
        }
        bytes
    }

    /// What says that something is on the disk waits until it is. That a leader was heard does not
    /// hang on the disk, once the term is there.
    fn hold_back(&mut self, promises: Vec<Message>, harvest: &mut Harvest) {
        if promises.is_empty() {
            return;
        }
        let synced_by = self.unsynced.back().filter(|_| !planted::is("vote_not_synced"));
        let Some(&(number, _)) = synced_by else {
            harvest.messages.extend(promises);
            return;
        };
        let mut held = Vec::new();
        for message in promises {
            let is_free = message.get_msg_type() == MessageType::MsgHeartbeatResponse
                && self.held_back.is_empty()
                && self.voting.is_none();
            if is_free { harvest.messages.push(message) } else { held.push(message) }
        }
        match self.held_back.back_mut() {
            _ if held.is_empty() => {}
            Some((at, messages)) if *at == number => messages.extend(held),
            _ => self.held_back.push_back((number, held)),
        }
    }

    /// Everything handed out under append `number` and before is on this node's disk: what may be
    /// said now.
    pub(crate) fn synced(&mut self, number: u64, messages: &mut Vec<Message>) {
        let mut last = None;
        while let Some(&(append, ready)) = self.unsynced.front() {
            if append > number {
                break;
            }
            last = Some(ready);
            self.unsynced.pop_front();
        }
        if let Some(ready) = last {
            self.give_way_if_gone();
            self.raw.on_persist_ready(ready);
            self.check_indexes();
        }
        self.voting = self.voting.filter(|at| *at > number);
        while self.held_back.front().is_some_and(|(append, _)| *append <= number) {
            messages.extend(self.held_back.pop_front().into_iter().flat_map(|(_, held)| held));
        }
    }

    /// Panics if the log's indexes do not stand in the order in which entries go through it.
    fn check_indexes(&self) {
        let last = self.last_index();
        assert!(self.persisted() <= last, "entries are on the disk that the log does not have");
        assert!(self.committed() <= last, "entries are committed that the log does not have");
    }

    /// Where the entry `index` was synced.
    pub(crate) fn placed(&mut self, index: u64, place: Place) {
        self.raw.mut_store().synced(index, place);
    }

    /// The machine has applied everything up to `index`.
    pub(crate) fn applied(&mut self, index: u64) {
        assert!(index <= self.committed(), "an entry is applied that is not committed");
        self.raw.advance_apply_to(index);
        self.raw.mut_store().applied(index);
        let Some(mut rejoining) = self.rejoining.take() else { return };
        let term = raft::Storage::term(self.log(), index).unwrap_or(0);
        rejoining.applied(index, term);
        self.go_on_rejoining(rejoining);
    }

    /// A checkpoint at `index` is synced: the log below is not needed any more.
    pub(crate) fn compact(&mut self, index: u64) {
        self.raw.mut_store().compact(index);
    }

    /// Entries that followers need and that must be read: (number, index, term and place of each).
    pub(crate) fn take_reads(&mut self) -> Vec<(u64, Vec<EntryAt>)> {
        use raft::Storage;
        let mut reads = Vec::new();
        for wanted in self.raw.mut_store().take_wanted() {
            let log = self.raw.store();
            let (low, high) = (wanted.low, wanted.high.min(wanted.low + ENTRIES_READ));
            let at = |index| {
                Some(EntryAt { index, term: log.term(index).ok()?, place: log.place(index)? })
            };
            let entries: Vec<EntryAt> = (low..high).map_while(at).collect();
            self.reads += 1;
            self.raw.mut_store().set_reading(low, true);
            self.reading.push_back((self.reads, wanted));
            reads.push((self.reads, entries));
        }
        reads
    }

    /// What was read. Nothing: it is not there any more, and `raft` asks again or sends a snapshot.
    pub(crate) fn read(&mut self, number: u64, entries: Vec<Entry>) {
        let is_gone = entries.is_empty();
        let Some(nth) = self.reading.iter().position(|(at, _)| *at == number) else { return };
        let Some((_, wanted)) = self.reading.remove(nth) else { return };
        self.raw.mut_store().set_reading(wanted.low, false);
        self.raw.mut_store().set_fetched(entries);
        self.raw.on_entries_fetched(wanted.context);
        self.raw.mut_store().set_fetched(Vec::new());
        // Whatever more it wants from there on comes with the follower's next answer.
        self.raw.mut_store().take_wanted();
        if is_gone {
            // Asked again, it says so, and the follower gets a snapshot.
            self.raw.mut_store().forget_what_is_covered();
        }
    }

    /// Whether nothing of it is being written, and nothing is to be.
    pub(crate) fn is_quiet(&self) -> bool {
        self.unsynced.is_empty() && !self.raw.has_ready()
    }

    /// A snapshot at `index` took the place of the log. Term and vote stay.
    pub(crate) fn restore(&mut self, index: u64, term: u64, members: ConfState) {
        let mut hard_state = self.raw.raft.hard_state();
        hard_state.commit = index;
        hard_state.term = hard_state.term.max(term);
        let leader = self.last_leader();
        let log = RaftLog::new(hard_state, members, index, term);
        let held_back = std::mem::take(&mut self.held_back);
        let rejoining = self.rejoining.take();
        self.replace_log(log, index);
        self.held_back = held_back;
        self.rejoining = rejoining;
        self.before = leader;
    }

    /// The leader that was heard last, even if it was lost since.
    pub(crate) fn last_leader(&self) -> Option<NodeId> {
        self.leader().or(self.before)
    }

    /// Followers that need a snapshot.
    pub(crate) fn take_behind(&mut self) -> Vec<u64> {
        self.raw.mut_store().take_behind()
    }

    pub(crate) fn log(&self) -> &RaftLog {
        self.raw.store()
    }
}

fn item(entry: &Entry) -> Item {
    Item::Entry { index: entry.index, term: entry.term, data: entry::to_disk(entry) }
}

#[cfg(test)]
mod tests;
