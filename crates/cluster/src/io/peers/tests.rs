//! Real sockets on this machine: nodes that find, lose and refuse each other, and strangers.

mod bulk;
mod joining;
mod links;
mod proxy;
mod questions;
mod strangers;
mod tls;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use machine::{GroupId, NodeId};

use super::*;
use crate::limits::MAILBOX_BYTES;

const CLUSTER: u128 = 0xfeed;

/// How long something may take that takes milliseconds.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A node that is nothing but its connections.
struct Node {
    peers: Peers,
    shard: Arc<Mailbox<Input>>,
    /// Taken from the mailbox, not looked at yet.
    inputs: Vec<Input>,
    remembered: Arc<Mutex<Vec<Address>>>,
}

struct Start {
    node: u64,
    incarnation: u64,
    boot: u64,
    /// What its directory had before; 0: the number before that of the start.
    last_boot: u64,
    secret: &'static str,
    cluster: u128,
    mailbox_bytes: usize,
    bulk_bytes_per_second: u64,
    tls: Option<Tls>,
}

impl Start {
    fn node(node: u64) -> Self {
        Self {
            node,
            incarnation: 70 + node,
            boot: 1,
            last_boot: 0,
            secret: "s3cret",
            cluster: CLUSTER,
            mailbox_bytes: MAILBOX_BYTES,
            bulk_bytes_per_second: BULK_BYTES_PER_SECOND,
            tls: None,
        }
    }

    fn start(self) -> Node {
        let shard = Mailbox::new(self.mailbox_bytes);
        let remembered = Arc::new(Mutex::new(Vec::new()));
        let config = Config {
            speaks: machine::Version::NEWEST,
            node: NodeId(self.node),
            cluster: self.cluster,
            incarnation: self.incarnation,
            boot: self.boot,
            last_boot: if self.last_boot > 0 { self.last_boot } else { self.boot - 1 },
            secret: Secret::new(self.secret),
            listen: "127.0.0.1:0".to_owned(),
            advertised: None,
            members: Vec::new(),
            founding: (8, vec![(NodeId(1), "a:7000".to_owned())]),
            bulk_bytes_per_second: self.bulk_bytes_per_second,
            tls: self.tls,
            remember: {
                let remembered = Arc::clone(&remembered);
                Box::new(move |known| *remembered.lock().unwrap() = known.to_vec())
            },
        };
        let peers = Peers::start(config, vec![Arc::clone(&shard)]).unwrap();
        Node { peers, shard, inputs: Vec::new(), remembered }
    }
}

impl Node {
    fn address(&self) -> Address {
        let node = self.peers.shared.hello.node;
        let address = self.peers.local().to_string();
        Address { node, address, incarnation: None, boot: 0, stamp: 0 }
    }

    /// The next thing that the shard is told.
    fn next(&mut self) -> Input {
        let deadline = Instant::now() + TIMEOUT;
        while self.inputs.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "nothing came");
            self.shard.take(&mut self.inputs, Some(left), true);
        }
        self.inputs.remove(0)
    }

    fn expect_up(&mut self, peer: u64) {
        let next = self.next();
        assert!(matches!(next, Input::PeerUp { node, .. } if node.0 == peer), "{next:?}");
    }

    fn expect_down(&mut self, peer: u64) {
        loop {
            match self.next() {
                Input::PeerDown { node } if node.0 == peer => return,
                Input::Peers { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// The next `count` messages of a peer.
    fn messages(&mut self, peer: u64, count: usize) -> Vec<Message> {
        let mut all = Vec::new();
        while all.len() < count {
            match self.next() {
                Input::Peers { from, messages } if from.0 == peer => all.extend(messages),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(all.len(), count);
        all
    }

    /// What is kept of the only other member's incarnation.
    fn kept_incarnation(&self) -> Option<u64> {
        let remembered = self.remembered.lock().unwrap();
        assert_eq!(remembered.len(), 1);
        remembered[0].incarnation
    }

    /// Why it is of the cluster no longer.
    fn await_expulsion(&self) -> String {
        let expelled = self.peers.expelled();
        wait_for(|| expelled.borrow().clone())
    }

    /// Nothing has come so far.
    fn is_quiet(&mut self) -> bool {
        self.shard.take(&mut self.inputs, Some(Duration::ZERO), true);
        self.inputs.is_empty()
    }

    fn trouble(&self, peer: u64) -> Option<String> {
        let status = self.peers.status();
        status.into_iter().find(|status| status.node.0 == peer).unwrap().trouble
    }

    /// What is said of a peer that does not come.
    fn await_trouble(&self, peer: u64) -> String {
        wait_for(|| self.trouble(peer))
    }
}

/// Looks again and again, but not for ever.
fn wait_for<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "it does not come");
        std::thread::yield_now();
    }
}

fn introduce(nodes: &[&Node]) {
    let addresses: Vec<_> = nodes.iter().map(|node| node.address()).collect();
    for node in nodes {
        node.peers.set_members(&addresses);
    }
}

/// Two nodes that are connected.
fn pair() -> (Node, Node) {
    let (mut one, mut two) = (Start::node(1).start(), Start::node(2).start());
    introduce(&[&one, &two]);
    one.expect_up(2);
    two.expect_up(1);
    (one, two)
}

fn numbered(seq: u64, bytes: usize) -> Message {
    Message::Snapshot { group: GroupId(seq as u32), chunk: Bytes::from(vec![seq as u8; bytes]) }
}

fn number(message: &Message) -> u64 {
    u64::from(message.group().0)
}
