//! One session on a node of its own, driven byte by byte.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use broker::Config;
use broker::population::Population;
use broker::session::{Input, Outputs, ReplyAddresses, Session, View};
use cluster::{Answer, Request};
use machine::SessionId;

use crate::fake_cluster::FakeCluster;
use crate::wire::{self, Spec};

/// Nobody listens anywhere.
struct NoAddresses;

impl ReplyAddresses for NoAddresses {
    fn is_open(&self, _address: &str) -> bool {
        false
    }
}

pub(crate) struct World {
    pub(crate) methods: BTreeMap<String, Spec>,
    pub(crate) cluster: FakeCluster,
    pub(crate) session: Session,
    pub(crate) out: Outputs,
    pub(crate) now: Instant,
    /// Appends are answered when `answer_held` is called.
    pub(crate) holds_appends: bool,
    held: Vec<Answer>,
    /// The client's socket takes no bytes.
    pub(crate) takes_nothing: bool,
    /// Bytes that other sessions have on their way to their clients.
    pub(crate) others_outbound: u64,
    /// What the session had after its last step.
    outbound: u64,
    /// What the session asked, in order.
    pub(crate) asked: Vec<String>,
}

const SESSION: SessionId = SessionId(1);

/// A check takes tens of milliseconds, and a fuzzer begins thousands of worlds with the same one.
fn is_right(stored: String, password: &str) -> bool {
    static OF_GUEST: OnceLock<String> = OnceLock::new();
    if password == "guest" && OF_GUEST.get() == Some(&stored) {
        return true;
    }
    let is_right = broker::password::verify(&stored, password);
    if is_right && password == "guest" {
        let _ = OF_GUEST.set(stored);
    }
    is_right
}

impl World {
    /// A connection that has said nothing.
    pub(crate) fn connected(config: Config) -> Self {
        Self::connected_from("127.0.0.1:40000", config)
    }

    /// The same from a peer's address.
    pub(crate) fn connected_from(peer: &str, config: Config) -> Self {
        let now = Instant::now();
        let peer = peer.parse().unwrap();
        let session = Session::new(Arc::new(config), SESSION, crate::NODE, peer, [1; 32], now, 0);
        Self {
            methods: wire::methods(),
            cluster: FakeCluster::new(),
            session,
            out: Outputs::default(),
            now,
            holds_appends: false,
            held: Vec::new(),
            takes_nothing: false,
            others_outbound: 0,
            outbound: 0,
            asked: Vec::new(),
        }
    }

    /// A connection that has logged in, with channel 1 open and the durable queue `q`.
    pub(crate) fn running() -> Self {
        Self::running_with(Config::default(), 0)
    }

    /// The same with a heartbeat of so many seconds.
    pub(crate) fn running_with(config: Config, heartbeat: u16) -> Self {
        let mut world = Self::connected(config);
        world.say("protocol-header");
        world.say("0 connection.start-ok mechanism=PLAIN response=\\0guest\\0guest locale=en_US");
        world.say(&format!(
            "0 connection.tune-ok channel-max=2047 frame-max=131072 heartbeat={heartbeat}"
        ));
        world.say("0 connection.open virtual-host=/");
        world.say("1 channel.open");
        world.say("1 queue.declare queue=q durable");
        assert!(world.session.is_running());
        world.asked.clear();
        world
    }

    /// A client's line, and what it gets for it.
    pub(crate) fn say(&mut self, line: &str) -> Vec<String> {
        let bytes = self.bytes(line);
        self.feed(&bytes)
    }

    pub(crate) fn bytes(&self, line: &str) -> Vec<u8> {
        if line == "protocol-header" {
            return b"AMQP\0\0\x09\x01".to_vec();
        }
        let words = wire::words(line);
        let spec = &self.methods[&words[1]];
        wire::message(spec, words[0].parse().unwrap(), &wire::pairs(&words[2..]))
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Vec<String> {
        self.session.buffer().extend_from_slice(bytes);
        self.step(Input::Received);
        self.settle_down()
    }

    /// Answers until nobody asks any more; then what came out.
    pub(crate) fn settle_down(&mut self) -> Vec<String> {
        loop {
            for request in std::mem::take(&mut self.out.requests) {
                self.asked.push(kind(&request).to_owned());
                self.cluster.ask(SESSION, request);
            }
            if let Some(verify) = self.out.verify.take() {
                let password = String::from_utf8(verify.password).unwrap_or_default();
                let stored = verify.stored.unwrap_or_default();
                self.step(Input::Verified(is_right(stored, &password)));
                continue;
            }
            let mut now = Vec::new();
            for (_, answer) in std::mem::take(&mut self.cluster.answers) {
                match answer {
                    Answer::Appended { .. } | Answer::Admitted { .. } if self.holds_appends => {
                        self.held.push(answer);
                    }
                    answer => now.push(answer),
                }
            }
            if now.is_empty() {
                break;
            }
            self.step(Input::Answered(&mut now));
        }
        self.out.replies.clear();
        if self.takes_nothing {
            return Vec::new();
        }
        wire::lines(&self.methods, &self.out.bytes.split())
    }

    pub(crate) fn answer_held(&mut self) -> Vec<String> {
        let mut held = std::mem::take(&mut self.held);
        self.step(Input::Answered(&mut held));
        self.settle_down()
    }

    pub(crate) fn step(&mut self, input: Input<'_>) {
        let view = View {
            catalog: &self.cluster.catalog,
            alarms: self.cluster.alarms,
            in_flight_bytes: 0,
            outbound_bytes: self.others_outbound + self.outbound,
            consumers: self.session.consumer_count(),
            replies: &NoAddresses,
            quotas: &RefCell::new(Population::default()),
        };
        self.session.step(self.now, &view, input, &mut self.out);
        self.outbound = self.session.outbound_bytes(self.out.bytes.len());
    }

    pub(crate) fn asked(&self, what: &str) -> usize {
        self.asked.iter().filter(|asked| *asked == what).count()
    }
}

fn kind(request: &Request) -> &'static str {
    match request {
        Request::Append { .. } => "append",
        Request::Catalog { .. } => "catalog",
        Request::Attach { .. } => "attach",
        Request::Detach { .. } => "detach",
        Request::Credit { .. } => "credit",
        Request::ChangeConsumer { .. } => "change-consumer",
        Request::Settle { .. } => "settle",
        Request::Get { .. } => "get",
        Request::Purge { .. } => "purge",
        Request::Withhold { .. } => "withhold",
        Request::Status { .. } => "status",
        Request::Describe { .. } => "describe",
        Request::Peek { .. } => "peek",
        Request::Lock { .. } => "lock",
        Request::CloseQueue { .. } => "close-queue",
        Request::Admit { .. } => "admit",
        Request::EndSession { .. } => "end-session",
    }
}
