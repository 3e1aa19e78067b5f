//! The cores of a few nodes on one thread: wires that can be cut, disks that can be held up.
#![allow(dead_code, reason = "each test uses its part")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use cluster::exchange::{Fetch, Input, Now, Output, Peek, WantedQueue};
use cluster::limits::Sizes;
use cluster::peer::message::Message;
use cluster::reading::{OpenSegments, StoreReader};
use cluster::recovery::{Genesis, Groups};
use cluster::shard::{Member, Shard};
use cluster::{Answer, Request, Ticket};
use machine::{
    Arguments, CatalogCommand, CatalogReply, GroupId, NodeId, NodeInfo, QueueId, QueueSettings,
    SessionId, SessionOwner, Value, Version,
};
use wal::sim::SimDisk;
use wal::{Boot, CommitBatch, Config, Identity, Wal};

const FILE_BYTES: u64 = 4 << 20;
const GROUPS_PER_NODE: u32 = 2;
/// A connection that is silent for so long is closed.
const SILENCE_MS: u64 = 1500;

pub(crate) struct Core {
    pub(crate) id: NodeId,
    pub(crate) disk: SimDisk,
    pub(crate) shards: Vec<Shard>,
    pub(crate) inboxes: Vec<Vec<Input>>,
    /// Shard, number, what is to be written, entries.
    pub(crate) appends: VecDeque<(usize, u64, CommitBatch, usize)>,
    wal: Wal<SimDisk>,
    reader: StoreReader<SimDisk>,
    pub(crate) answers: Vec<(SessionId, Answer)>,
    reconciled: usize,
    /// What its catalog had agreed on when the first of its shards could serve.
    pub(crate) agreed_when_ready: Option<Version>,
    /// Why it does nothing any more.
    pub(crate) outdated: Option<String>,
}

pub(crate) struct Cluster {
    pub(crate) cores: Vec<Core>,
    wires: BTreeMap<(NodeId, NodeId), VecDeque<Message>>,
    up: BTreeSet<(NodeId, NodeId)>,
    /// Wires on which nothing arrives for now, and since when.
    pub(crate) silent: BTreeMap<(NodeId, NodeId), u64>,
    /// Nodes whose disk takes its time.
    pub(crate) stalled: BTreeSet<NodeId>,
    /// Nodes that take no step for now: what comes waits for them.
    pub(crate) asleep: BTreeSet<NodeId>,
    pub(crate) ms: u64,
    /// How wrong a node's clock on the wall is, in milliseconds.
    pub(crate) wall_errors: BTreeMap<NodeId, i64>,
    /// The newest version that a node reads, from its next start on.
    pub(crate) speaks: BTreeMap<NodeId, Version>,
    shards: usize,
}

impl Cluster {
    /// `nodes` nodes that have met and serve.
    pub(crate) fn new(nodes: u64, shards: usize) -> Self {
        Self::at(nodes, shards, Version::NEWEST)
    }

    /// The same, with programs that read versions up to this one.
    pub(crate) fn at(nodes: u64, shards: usize, version: Version) -> Self {
        let ids: Vec<NodeId> = (1..=nodes).map(NodeId).collect();
        let start = |id: &NodeId| Core::start(*id, SimDisk::new(id.0), nodes, shards, version);
        let cores = ids.iter().map(start);
        let mut cluster = Self {
            cores: cores.collect(),
            wires: BTreeMap::new(),
            up: BTreeSet::new(),
            silent: BTreeMap::new(),
            stalled: BTreeSet::new(),
            asleep: BTreeSet::new(),
            ms: 0,
            wall_errors: BTreeMap::new(),
            speaks: ids.iter().map(|id| (*id, version)).collect(),
            shards,
        };
        for a in &ids {
            for b in ids.iter().filter(|b| *b > a) {
                cluster.heal(*a, *b);
            }
        }
        cluster.run(3000);
        assert!(cluster.cores.iter().all(|core| core.reconciled == shards), "all serve");
        cluster
    }

    pub(crate) fn heal(&mut self, a: NodeId, b: NodeId) {
        for (from, to) in [(a, b), (b, a)] {
            self.up.insert((from, to));
            self.wires.insert((from, to), VecDeque::new());
            let speaks = self.speaks[&to];
            self.core(from).send_to_all(|| Input::PeerUp { node: to, speaks });
        }
    }

    pub(crate) fn cut(&mut self, a: NodeId, b: NodeId) {
        for (from, to) in [(a, b), (b, a)] {
            self.up.remove(&(from, to));
            self.wires.remove(&(from, to));
            self.silent.remove(&(from, to));
            self.core(from).send_to_all(|| Input::PeerDown { node: to });
        }
    }

    /// One end alone takes the wire for gone: what the other says is lost.
    pub(crate) fn lose_sight(&mut self, of: NodeId, from: NodeId) {
        self.wires.remove(&(of, from));
        self.core(of).send_to_all(|| Input::PeerDown { node: from });
    }

    /// And takes it for back.
    pub(crate) fn catch_sight(&mut self, of: NodeId, from: NodeId) {
        self.wires.insert((of, from), VecDeque::new());
        let speaks = self.speaks[&from];
        self.core(of).send_to_all(|| Input::PeerUp { node: from, speaks });
    }

    /// The process dies and starts again on the same disk; the wires come back at once.
    pub(crate) fn restart(&mut self, id: NodeId) {
        let others: Vec<NodeId> =
            self.cores.iter().map(|core| core.id).filter(|other| *other != id).collect();
        self.restart_alone(id);
        for other in others {
            self.heal(id, other);
        }
    }

    /// The process dies and starts again on the same disk; nobody reaches it yet.
    pub(crate) fn restart_alone(&mut self, id: NodeId) {
        let others: Vec<NodeId> =
            self.cores.iter().map(|core| core.id).filter(|other| *other != id).collect();
        for other in &others {
            if self.up.contains(&(id, *other)) {
                self.cut(id, *other);
            }
        }
        let nth = self.cores.iter().position(|core| core.id == id).unwrap();
        let core = self.cores.remove(nth);
        let disk = core.disk.clone();
        drop(core);
        let nodes = self.cores.len() as u64 + 1;
        let core = Core::start(id, disk, nodes, self.shards, self.speaks[&id]);
        self.cores.insert(nth, core);
    }

    pub(crate) fn is_up(&self, a: NodeId, b: NodeId) -> bool {
        self.up.contains(&(a, b))
    }

    /// There is a dead-letter worker on a node from now on.
    pub(crate) fn open_dead_letter_worker(&mut self, node: NodeId) {
        self.core(node).send_to_all(|| Input::DeadLetterWorkerOpened);
    }

    /// There is a dead-letter worker on every node from now on.
    pub(crate) fn open_dead_letter_workers(&mut self) {
        self.cores.iter_mut().for_each(|core| core.send_to_all(|| Input::DeadLetterWorkerOpened));
    }

    /// The catalog of a node jumps to one that has none of the queues that it had.
    pub(crate) fn lose_queues(&mut self, node: NodeId) {
        self.jump(node, &[]);
    }

    /// The catalog of a node jumps to one that has these plain queues, and no others.
    pub(crate) fn jump(&mut self, node: NodeId, queues: &[(QueueId, GroupId)]) {
        let agreed = Version::NEWEST;
        let shards = self.shards;
        for (number, inbox) in self.core(node).inboxes.iter_mut().enumerate() {
            let queues = queues.iter().filter(|(_, group)| Shard::of(*group, shards) == number);
            let plain = |&(queue, group): &(QueueId, GroupId)| {
                let settings = QueueSettings::default();
                WantedQueue { group, queue, settings, revision: 0 }
            };
            let queues = queues.map(plain).collect();
            inbox.push(Input::Reconcile { queues, next_queue: u64::MAX, agreed });
        }
    }

    /// A queue as the catalog of a node has it.
    pub(crate) fn queue(&mut self, node: NodeId, queue: QueueId) -> machine::Queue {
        let catalog = self.core(node).shards[0].catalog().expect("the catalog's shard");
        catalog.queue_by_id(queue).expect("a queue").clone()
    }

    /// A session says goodbye to every shard.
    pub(crate) fn end_session(&mut self, session: SessionId, ticket: Ticket) {
        let home = Shard::node_of(session).unwrap();
        self.core(home).send_to_all(|| Input::EndSession { session, ticket });
    }

    pub(crate) fn core(&mut self, id: NodeId) -> &mut Core {
        self.cores.iter_mut().find(|core| core.id == id).unwrap()
    }

    /// Every node takes a turn per millisecond.
    pub(crate) fn run(&mut self, ms: u64) {
        for _ in 0..ms {
            self.ms += 1;
            self.turn();
        }
    }

    pub(crate) fn turn(&mut self) {
        let wall_ms = 1_700_000_000_000 + self.ms;
        let is_long = |_: &_, since: &mut u64| *since + SILENCE_MS <= self.ms;
        let closed: Vec<_> = self.silent.extract_if(.., is_long).map(|(wire, _)| wire).collect();
        closed.into_iter().for_each(|(a, b)| self.cut(a, b));
        for ((from, to), wire) in &mut self.wires {
            if self.silent.contains_key(&(*from, *to)) {
                continue;
            }
            let core = self.cores.iter_mut().find(|core| core.id == *to).unwrap();
            for message in wire.drain(..) {
                let shard = Shard::of(message.group(), core.shards.len());
                let messages = vec![message];
                core.inboxes[shard].push(Input::Peers { from: *from, messages });
            }
        }
        for core in self.cores.iter_mut().filter(|core| !self.asleep.contains(&core.id)) {
            if !self.stalled.contains(&core.id) {
                core.sync();
            }
            let error = self.wall_errors.get(&core.id).copied().unwrap_or(0);
            let now = Now { mono_ms: self.ms, wall_ms: wall_ms.saturating_add_signed(error) };
            for (to, message) in core.step(now) {
                let reads = self.speaks[&to];
                assert!(reads >= since(&message), "{message:?}");
                if let Some(wire) = self.wires.get_mut(&(core.id, to)) {
                    wire.push_back(message);
                }
            }
        }
    }

    pub(crate) fn leader(&mut self, group: GroupId) -> NodeId {
        let shard = Shard::of(group, self.shards);
        let leads = |core: &&Core| {
            let reports = core.shards[shard].report_groups(false);
            reports.iter().any(|it| it.group == group && it.leader == Some(core.id))
        };
        self.cores.iter().find(leads).expect("somebody leads").id
    }

    /// Who leads besides a node that may not know that it does not.
    pub(crate) fn leader_but(&mut self, group: GroupId, not: NodeId) -> Option<NodeId> {
        let shard = Shard::of(group, self.shards);
        let leads = |core: &&Core| {
            let reports = core.shards[shard].report_groups(false);
            core.id != not
                && reports.iter().any(|it| it.group == group && it.leader == Some(core.id))
        };
        self.cores.iter().find(leads).map(|core| core.id)
    }

    pub(crate) fn ask(&mut self, session: SessionId, request: Request) {
        let home = Shard::node_of(session).unwrap();
        let group = match &request {
            Request::Append { group, .. }
            | Request::Attach { group, .. }
            | Request::Detach { group, .. }
            | Request::Credit { group, .. }
            | Request::ChangeConsumer { group, .. }
            | Request::Settle { group, .. }
            | Request::Get { group, .. }
            | Request::Purge { group, .. }
            | Request::Withhold { group, .. }
            | Request::Status { group, .. }
            | Request::Describe { group, .. }
            | Request::Peek { group, .. }
            | Request::Lock { group, .. }
            | Request::Admit { group, .. }
            | Request::CloseQueue { group, .. } => *group,
            Request::Catalog { .. } | Request::EndSession { .. } => GroupId::CATALOG,
        };
        let shard = Shard::of(group, self.shards);
        let requests = vec![request];
        self.core(home).inboxes[shard].push(Input::Requests { session, requests });
    }

    /// What `session` was told since the last time.
    pub(crate) fn told(&mut self, session: SessionId) -> Vec<Answer> {
        let core = self.core(Shard::node_of(session).unwrap());
        let is_its = |(to, _): &mut (SessionId, Answer)| *to == session;
        core.answers.extract_if(.., is_its).map(|(_, answer)| answer).collect()
    }

    pub(crate) fn declare(
        &mut self,
        session: SessionId,
        name: &str,
        (durable, auto_delete): (bool, bool),
    ) -> (QueueId, GroupId) {
        self.declare_with(session, name, (durable, auto_delete), &[])
    }

    pub(crate) fn declare_with(
        &mut self,
        session: SessionId,
        name: &str,
        (durable, auto_delete): (bool, bool),
        arguments: &[(&str, Value)],
    ) -> (QueueId, GroupId) {
        let arguments = arguments.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        let command = CatalogCommand::DeclareQueue {
            vhost: "/".to_owned(),
            name: name.to_owned(),
            durable,
            auto_delete,
            exclusive: false,
            server_named: false,
            arguments: Arguments(arguments.collect()),
            by: SessionOwner { node: Shard::node_of(session).unwrap(), session },
        };
        self.ask(session, Request::Catalog { ticket: Ticket(5), command });
        self.run(100);
        match &self.told(session)[..] {
            [Answer::Catalog { reply: CatalogReply::QueueDeclared { queue, group, .. }, .. }] => {
                (*queue, *group)
            }
            other => panic!("not declared: {other:?}"),
        }
    }
}

impl Core {
    fn start(id: NodeId, disk: SimDisk, nodes: u64, shards: usize, speaks: Version) -> Self {
        let fresh = Identity { cluster: 7, node: id.0, incarnation: 1 };
        let mut config = Config::new(Identity::load(&disk).unwrap().unwrap_or(fresh));
        config.file_bytes = FILE_BYTES;
        config.ballast_bytes = 0;
        let (mut wal, mut recovered) = Wal::open(disk.clone(), config).unwrap();
        // What is damaged here is whole on the other nodes.
        let groups = GROUPS_PER_NODE * nodes as u32;
        let mut keeper = wal.keeper();
        wal.quarantine_damaged(&mut keeper, &mut recovered, 0..=groups).unwrap();
        let boot = Boot::next(&disk).unwrap();
        let me = Member { node: id, boot, seed: id.0, speaks };
        let info = |node| NodeInfo { node: NodeId(node), address: String::new(), incarnation: 1 };
        let genesis =
            Genesis { nodes: (1..=nodes).map(info).collect(), groups_per_node: GROUPS_PER_NODE };
        let reader = wal.reader();
        let groups = Groups::recover(me, &genesis, &reader, recovered).unwrap();
        let shards = groups.into_shards(me, shards, Sizes::of(FILE_BYTES));
        let inboxes = shards.iter().map(|_| Vec::new()).collect();
        let mut core = Self {
            id,
            disk,
            shards,
            inboxes,
            appends: VecDeque::new(),
            wal,
            reader: StoreReader::new(reader),
            answers: Vec::new(),
            reconciled: 0,
            agreed_when_ready: None,
            outdated: None,
        };
        for number in 0..core.shards.len() {
            let mut outputs = Vec::new();
            core.shards[number].start(Now::default(), &mut outputs);
            assert!(core.perform(number, outputs).is_empty(), "nobody is known yet");
        }
        core
    }

    fn send_to_all(&mut self, input: impl Fn() -> Input) {
        self.inboxes.iter_mut().for_each(|inbox| inbox.push(input()));
    }

    /// Takes one step of every shard; what is to be sent.
    fn step(&mut self, now: Now) -> Vec<(NodeId, Message)> {
        let mut letters = Vec::new();
        for number in 0..self.shards.len() {
            let mut outputs = Vec::new();
            let mut inputs = std::mem::take(&mut self.inboxes[number]);
            self.shards[number].step(now, &mut inputs, &mut outputs);
            self.shards[number].check();
            letters.extend(self.perform(number, outputs));
        }
        letters
    }

    fn perform(&mut self, shard: usize, outputs: Vec<Output>) -> Vec<(NodeId, Message)> {
        let mut letters = Vec::new();
        for output in outputs {
            match output {
                Output::Append { number, batch, entries } => {
                    let before = self.appends.iter().filter(|(of, ..)| *of == shard);
                    assert!(before.clone().all(|(_, at, ..)| *at < number), "numbers go up");
                    self.appends.push_back((shard, number, batch, entries));
                }
                Output::Answer { session, answer } => self.answers.push((session, answer)),
                Output::Fetch(fetch) => {
                    let runs = self.reader.fetch(&OpenSegments::default(), &fetch).unwrap();
                    let Fetch { group, queue, reader, .. } = fetch;
                    self.inboxes[shard].push(Input::Fetched { group, queue, reader, runs });
                }
                Output::Peek(peek) => {
                    let peeked = self.reader.peek(&OpenSegments::default(), &peek).unwrap();
                    let Peek { group, session, ticket, .. } = *peek;
                    let result = Ok(Box::new(peeked));
                    self.inboxes[shard].push(Input::Peeked { group, session, ticket, result });
                }
                Output::Forward { shard, input } => {
                    let is_answered = matches!(
                        input,
                        Input::CreateQueue { then: Some(_), .. }
                            | Input::DropQueue { then: Some(_), .. }
                    );
                    assert!(!is_answered, "another shard answers before sessions route by it");
                    self.inboxes[shard].push(input);
                }
                Output::CatalogApplied { forwards, .. } => {
                    for (shard, input) in forwards {
                        self.inboxes[shard].push(input);
                    }
                }
                Output::Outdated { why } => self.outdated = Some(why),
                Output::Reconciled => {
                    self.reconciled += 1;
                    let agreed = self.shards[0].catalog().map(machine::Catalog::agreed);
                    self.agreed_when_ready = self.agreed_when_ready.or(agreed);
                }
                Output::Send { to, message } => letters.push((to, message)),
                Output::ReadEntries { group, number, entries } => {
                    let entries = self.reader.entries(group, &entries).unwrap();
                    self.inboxes[shard].push(Input::EntriesRead { group, number, entries });
                }
                Output::CatalogReplaced { .. } | Output::CountsOn { .. } => {}
                other => panic!("not here: {other:?}"),
            }
        }
        letters
    }

    /// Writes and syncs what waits.
    pub(crate) fn sync(&mut self) {
        let waiting: Vec<_> = self.appends.drain(..).collect();
        if waiting.is_empty() {
            return;
        }
        let batches = waiting.iter().map(|(_, _, batch, _)| batch.clone()).collect();
        let mut places = self.wal.commit(batches).unwrap().into_places().into_iter();
        for (shard, number, _, entries) in waiting {
            let places = places.by_ref().take(entries).collect();
            self.inboxes[shard].push(Input::Synced { number, places });
        }
    }
}

/// With which version the newest operators' question or answer in it came.
fn since(message: &Message) -> Version {
    let of_request = |request: &Request| match request {
        Request::Describe { .. } => Version::DESCRIBED,
        Request::Peek { .. } => Version::PEEKED,
        Request::Lock { .. } => Version::LOCKS,
        Request::Withhold { .. } => Version::UNDO,
        Request::ChangeConsumer { .. } => Version::CONSUMER_CHANGES,
        _ => Version::OLDEST,
    };
    let of_answer = |answer: &Answer| match answer {
        Answer::Described { .. } => Version::DESCRIBED,
        Answer::Peeked { .. } => Version::PEEKED,
        Answer::Locked { .. } => Version::LOCKS,
        Answer::Withheld { .. } => Version::UNDO,
        _ => Version::OLDEST,
    };
    let newest = match message {
        Message::Requests { requests, .. } => requests.iter().map(of_request).max(),
        Message::Answers { answers, .. } => answers.iter().map(|(_, it)| of_answer(it)).max(),
        Message::Digest { .. } => Some(Version::CHAINED),
        Message::Borrow { .. } | Message::Lent { .. } => Some(Version::RATES),
        _ => None,
    };
    newest.unwrap_or(Version::OLDEST)
}
