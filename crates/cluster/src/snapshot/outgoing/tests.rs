use wal::sim::SimDisk;

use super::super::DATA_BYTES;
use super::super::chunk::{Chunk, Transfer};
use super::super::tests::{GROUP, Leader};
use super::*;

const TO: NodeId = NodeId(2);

/// A node with a checkpoint of some chunks, and the time.
struct Node {
    leader: Leader,
    outgoing: Outgoing<SimDisk>,
    connection: Option<u64>,
    now_ms: u64,
}

/// What the node wants in one step.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Nothing,
    Offers(Transfer),
    Carries,
    Ends { done: bool },
}

impl Node {
    /// One chunk may be on its way.
    fn new() -> Self {
        let mut leader = Leader::new(1);
        leader.publish(600, 8_000);
        leader.checkpoint();
        let outgoing = Outgoing::default().with_window(DATA_BYTES as u64);
        let mut node = Self { leader, outgoing, connection: Some(1), now_ms: 1_000 };
        node.ask(1);
        node
    }

    fn ask(&mut self, number: u64) {
        self.outgoing.begin(TO, self.leader.source(), number);
    }

    fn step(&mut self) -> Step {
        let (connection, mut sendings) = (self.connection, Vec::new());
        self.outgoing.go_on(self.now_ms, |_| connection, &mut sendings).unwrap();
        assert!(sendings.len() < 2, "one thing at a time: {sendings:?}");
        match sendings.pop() {
            None => Step::Nothing,
            Some(Sending::Say(TO, Message::Snapshot { group: GROUP, chunk })) => {
                let (transfer, chunk) = Chunk::decode(&chunk).unwrap();
                assert!(matches!(chunk, Chunk::Offer));
                Step::Offers(transfer)
            }
            Some(Sending::Carry(TO, Message::Snapshot { group: GROUP, .. })) => Step::Carries,
            Some(Sending::Tell(GROUP, Input::SnapshotSent { to: TO, done, .. })) => {
                Step::Ends { done }
            }
            other => panic!("{other:?}"),
        }
    }

    fn offers(&mut self) -> Transfer {
        match self.step() {
            Step::Offers(transfer) => transfer,
            other => panic!("{other:?}"),
        }
    }

    fn hears(&mut self, transfer: &Transfer, chunk: &Chunk) {
        let message = Message::Snapshot { group: GROUP, chunk: chunk.encode(transfer) };
        self.outgoing.hear(TO, &message);
    }

    fn hears_taken(&mut self, transfer: &Transfer, bytes: u64) {
        let Transfer { group, index, .. } = *transfer;
        let message = Message::SnapshotTaken { group, index, bytes };
        self.outgoing.hear(TO, &message);
    }

    /// All chunks are sent and acknowledged; so many were sent before.
    fn sends_all(&mut self, transfer: &Transfer, sent: u64) {
        self.hears(transfer, &Chunk::Want(Vec::new()));
        let mut chunks = sent;
        self.hears_taken(transfer, chunks * DATA_BYTES as u64);
        while self.step() == Step::Carries {
            chunks += 1;
            self.hears_taken(transfer, chunks * DATA_BYTES as u64);
        }
        assert!(chunks > 3, "{chunks} chunks");
    }
}

#[test]
fn a_snapshot_is_sent_as_far_as_the_window_goes_and_ends_with_the_receivers_word() {
    let mut node = Node::new();
    assert_eq!(node.outgoing.wait_ms(), Some(0));
    let transfer = node.offers();
    assert_eq!(node.step(), Step::Nothing, "nobody has said that it is wanted");
    node.hears(&transfer, &Chunk::Want(Vec::new()));
    assert_eq!((node.outgoing.wait_ms(), node.step()), (Some(0), Step::Carries));
    assert_eq!((node.outgoing.wait_ms(), node.step()), (Some(GLANCE_MS), Step::Nothing));
    node.hears_taken(&transfer, DATA_BYTES as u64);
    assert_eq!(node.step(), Step::Carries, "the window has moved");
    node.sends_all(&transfer, 2);
    node.hears(&transfer, &Chunk::Done { installed: true });
    assert_eq!((node.outgoing.wait_ms(), node.step()), (Some(0), Step::Ends { done: true }));
    assert_eq!((node.outgoing.wait_ms(), node.step()), (None, Step::Nothing));
}

#[test]
fn a_receiver_that_says_nothing_is_given_up() {
    let mut node = Node::new();
    let transfer = node.offers();
    node.now_ms += SILENCE_MS;
    assert_eq!(node.step(), Step::Nothing);
    node.hears(&transfer, &Chunk::Want(Vec::new()));
    assert_eq!(node.step(), Step::Carries);
    assert_eq!(node.step(), Step::Nothing);
    node.now_ms += SILENCE_MS;
    assert_eq!(node.step(), Step::Nothing);
    node.now_ms += 1;
    assert_eq!(node.step(), Step::Ends { done: false });
}

#[test]
fn a_chunk_that_takes_long_to_send_is_no_silence_of_the_receiver() {
    let mut node = Node::new();
    let transfer = node.offers();
    node.hears(&transfer, &Chunk::Want(Vec::new()));
    assert_eq!(node.step(), Step::Carries);
    // A slow network took it only now; from here on the receiver has its time.
    node.now_ms += 3 * SILENCE_MS;
    assert_eq!(node.step(), Step::Nothing);
    node.now_ms += SILENCE_MS;
    assert_eq!(node.step(), Step::Nothing);
    node.hears_taken(&transfer, DATA_BYTES as u64);
    node.now_ms += 3 * SILENCE_MS;
    assert_eq!(node.step(), Step::Carries);
}

#[test]
fn a_receiver_has_longer_to_install_what_it_has() {
    let mut node = Node::new();
    let transfer = node.offers();
    node.sends_all(&transfer, 0);
    assert_eq!(node.step(), Step::Nothing);
    node.now_ms += INSTALLING_MS;
    assert_eq!(node.step(), Step::Nothing);
    node.now_ms += 1;
    assert_eq!(node.step(), Step::Ends { done: false });
}

#[test]
fn a_connection_that_breaks_ends_the_transfer_and_the_next_begins() {
    let mut node = Node::new();
    let first = node.offers();
    node.ask(2);
    node.connection = Some(2);
    assert_eq!(node.step(), Step::Ends { done: false }, "another connection has come up since");
    let second = node.offers();
    assert_ne!(first, second);
    node.hears(&first, &Chunk::Done { installed: true });
    assert_eq!(node.step(), Step::Nothing, "that was about the other attempt");
    node.hears(&second, &Chunk::Want(Vec::new()));
    assert_eq!(node.step(), Step::Carries);
    node.outgoing.broken(NodeId(7));
    assert_eq!(node.step(), Step::Nothing);
    node.outgoing.broken(TO);
    assert_eq!((node.outgoing.wait_ms(), node.step()), (Some(0), Step::Ends { done: false }));
}

#[test]
fn the_receivers_word_counts_also_if_its_connection_broke_behind_it() {
    let mut node = Node::new();
    let transfer = node.offers();
    node.sends_all(&transfer, 0);
    node.hears(&transfer, &Chunk::Done { installed: true });
    node.connection = None;
    assert_eq!(node.step(), Step::Ends { done: true });
}

#[test]
fn who_cannot_be_reached_is_offered_nothing() {
    let mut node = Node::new();
    node.connection = None;
    assert_eq!(node.step(), Step::Ends { done: false });
    assert_eq!(node.outgoing.wait_ms(), None);
}
