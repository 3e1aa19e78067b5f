//! The node's registry of reply addresses: which session's mailbox a direct reply goes to, and how much may wait
//! there.
//!
//! What waits is bounded for each session and for all together. Who lets replies lie gets a smaller part of what is left
//! the more others let lie, so that something is left for who takes them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;

use crate::limits;
use crate::metrics::Metrics;
use crate::session::{Reply, ReplyAddresses, ReplyOrder};

/// Every open reply address of the node.
#[derive(Debug)]
pub(crate) struct Registry {
    mailboxes: Mutex<HashMap<String, Mailbox>>,
    /// Bytes of what waits for all sessions, in the whole steps of each.
    waiting: Arc<AtomicU64>,
    waiting_max: u64,
}

/// The way to one session.
#[derive(Clone, Debug)]
struct Mailbox {
    sender: mpsc::Sender<Waiting>,
    room: Arc<Room>,
}

/// What replies to one session may take.
#[derive(Debug)]
struct Room {
    /// Bytes of what waits in its mailbox.
    waiting: AtomicUsize,
    of_all: Arc<AtomicU64>,
    of_all_max: u64,
}

/// A reply that waits.
#[derive(Debug)]
struct Waiting {
    reply: Reply,
    taken: Taken,
}

/// Room that is taken as long as this is there.
#[derive(Debug)]
struct Taken {
    room: Arc<Room>,
    bytes: usize,
}

impl Mailbox {
    /// False: there is no room, or nobody.
    fn put(&self, reply: Reply) -> bool {
        let bytes = bytes_of(&reply);
        let has_room = self.room.take(bytes);
        // The room is given back, whatever becomes of the reply.
        let taken = Taken { room: Arc::clone(&self.room), bytes };
        has_room && self.sender.try_send(Waiting { reply, taken }).is_ok()
    }
}

impl Room {
    /// Counts a reply. False: that is more than there is room for.
    fn take(&self, bytes: usize) -> bool {
        let before = self.waiting.fetch_add(bytes, Ordering::Relaxed);
        let after = before + bytes;
        let more = steps_of(after) - steps_of(before);
        if more == 0 {
            return after <= limits::REPLIES_WAITING_BYTES_MAX;
        }
        let of_all = self.of_all.fetch_add(more, Ordering::Relaxed);
        let is_first = before == 0 && of_all == 0;
        let left = self.of_all_max.saturating_sub(of_all);
        is_first || (self.suits_one(before, after) && steps_of(after) <= left)
    }

    /// One session's bound. It lets the first through: a reply may be as large as messages are.
    fn suits_one(&self, before: usize, after: usize) -> bool {
        before == 0 || after <= limits::REPLIES_WAITING_BYTES_MAX
    }

    fn give_back(&self, bytes: usize) {
        let before = self.waiting.fetch_sub(bytes, Ordering::Relaxed);
        let fewer = steps_of(before) - steps_of(before - bytes);
        if fewer > 0 {
            self.of_all.fetch_sub(fewer, Ordering::Relaxed);
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.room.give_back(self.bytes);
    }
}

/// What is counted for all sessions of what waits for one: small replies cost no count.
fn steps_of(bytes: usize) -> u64 {
    (bytes - bytes % limits::REPLIES_WAITING_BYTES_FLOOR) as u64
}

fn bytes_of(reply: &Reply) -> usize {
    reply.address.len() + reply.properties.len() + reply.body.len()
}

impl Registry {
    /// `waiting` is the total of what waits; it may be `waiting_max`.
    pub(crate) fn new(waiting: Arc<AtomicU64>, waiting_max: u64) -> Self {
        Self { mailboxes: Mutex::default(), waiting, waiting_max }
    }

    fn mailbox(&self) -> (Mailbox, mpsc::Receiver<Waiting>) {
        let (sender, receiver) = mpsc::channel(limits::REPLIES_WAITING_MAX);
        let of_all = Arc::clone(&self.waiting);
        let room = Room { waiting: AtomicUsize::new(0), of_all, of_all_max: self.waiting_max };
        (Mailbox { sender, room: Arc::new(room) }, receiver)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Mailbox>> {
        self.mailboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReplyAddresses for Registry {
    fn is_open(&self, address: &str) -> bool {
        self.lock().get(address).is_some_and(|mailbox| !mailbox.sender.is_closed())
    }
}

/// One session's side of the registry. Its addresses go with it.
#[derive(Debug)]
pub(crate) struct Replies {
    registry: Arc<Registry>,
    addresses: Vec<String>,
    /// Made when the first address is opened: most sessions have none.
    mailbox: Option<(Mailbox, mpsc::Receiver<Waiting>)>,
}

impl Replies {
    pub(crate) fn new(registry: Arc<Registry>) -> Self {
        Self { registry, addresses: Vec::new(), mailbox: None }
    }

    /// Does what a session ordered. A reply whose reader is gone or slow is dropped, as AMQP's direct
    /// replies may be.
    pub(crate) fn perform(&mut self, orders: &mut Vec<ReplyOrder>, metrics: &Metrics) {
        for order in orders.drain(..) {
            match order {
                ReplyOrder::Open(address) => {
                    let (mailbox, _) = self.mailbox.get_or_insert_with(|| self.registry.mailbox());
                    self.registry.lock().insert(address.clone(), mailbox.clone());
                    self.addresses.push(address);
                }
                ReplyOrder::Close(address) => {
                    self.registry.lock().remove(&address);
                    self.addresses.retain(|known| *known != address);
                }
                ReplyOrder::Send(reply) => {
                    let mailbox = self.registry.lock().get(&reply.address).cloned();
                    let sent = mailbox.is_some_and(|mailbox| mailbox.put(reply));
                    if !sent {
                        Metrics::count(&metrics.replies_dropped);
                    }
                }
            }
        }
    }

    /// Waits for replies, and takes some; for ever if no address is open.
    pub(crate) async fn recv(&mut self, into: &mut Vec<Reply>) {
        match &mut self.mailbox {
            Some((_, receiver)) => {
                let (mut next, mut bytes) = (receiver.recv().await, 0);
                while let Some(Waiting { reply, taken }) = next {
                    bytes += taken.bytes;
                    into.push(reply);
                    let takes_more = bytes < limits::REPLIES_TAKEN_BYTES;
                    next = takes_more.then(|| receiver.try_recv().ok()).flatten();
                }
            }
            None => std::future::pending().await,
        }
    }
}

impl Drop for Replies {
    fn drop(&mut self) {
        if self.addresses.is_empty() {
            return;
        }
        let mut mailboxes = self.registry.lock();
        for address in &self.addresses {
            mailboxes.remove(address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    const TOGETHER_MAX: u64 = 2 * limits::REPLIES_WAITING_BYTES_MAX as u64;

    fn registry() -> Arc<Registry> {
        Arc::new(Registry::new(Arc::default(), TOGETHER_MAX))
    }

    /// A session that opened an address.
    fn at(registry: &Arc<Registry>, address: &str) -> Replies {
        let mut replies = Replies::new(Arc::clone(registry));
        replies.perform(&mut vec![ReplyOrder::Open(address.to_owned())], &Metrics::default());
        replies
    }

    /// Whether a reply of so many bytes found room.
    fn fits(registry: &Arc<Registry>, address: &str, bytes: usize) -> bool {
        let body = Bytes::from(vec![0; bytes]);
        let reply = Reply { address: address.to_owned(), properties: Bytes::new(), body };
        let metrics = Metrics::default();
        Replies::new(Arc::clone(registry)).perform(&mut vec![ReplyOrder::Send(reply)], &metrics);
        metrics.replies_dropped.load(Ordering::Relaxed) == 0
    }

    fn reply(address: &str) -> ReplyOrder {
        let address = address.to_owned();
        ReplyOrder::Send(Reply { address, properties: Bytes::new(), body: Bytes::new() })
    }

    #[tokio::test]
    async fn replies_reach_their_session_and_an_address_goes_with_it() {
        let registry = registry();
        let metrics = Metrics::default();
        let mut requester = Replies::new(Arc::clone(&registry));
        let mut responder = Replies::new(Arc::clone(&registry));
        requester.perform(&mut vec![ReplyOrder::Open("a".to_owned())], &metrics);
        assert!(registry.is_open("a"));
        responder.perform(&mut vec![reply("a"), reply("b")], &metrics);
        let mut received = Vec::new();
        requester.recv(&mut received).await;
        assert_eq!(received.len(), 1);
        assert_eq!(metrics.replies_dropped.load(Ordering::Relaxed), 1, "nobody is at b");
        drop(requester);
        assert!(!registry.is_open("a"));
    }

    #[tokio::test]
    async fn a_slow_reader_has_only_so_many_replies_waiting() {
        let registry = registry();
        let metrics = Metrics::default();
        let mut slow = Replies::new(Arc::clone(&registry));
        slow.perform(&mut vec![ReplyOrder::Open("a".to_owned())], &metrics);
        let mut orders: Vec<_> = (0..limits::REPLIES_WAITING_MAX + 3).map(|_| reply("a")).collect();
        Replies::new(registry).perform(&mut orders, &metrics);
        assert_eq!(metrics.replies_dropped.load(Ordering::Relaxed), 3);
    }

    #[tokio::test]
    async fn a_slow_reader_has_only_so_many_bytes_waiting() {
        let registry = registry();
        let metrics = Metrics::default();
        let mut slow = Replies::new(Arc::clone(&registry));
        slow.perform(&mut vec![ReplyOrder::Open("a".to_owned())], &metrics);
        let body = Bytes::from(vec![0; limits::REPLIES_WAITING_BYTES_MAX / 4]);
        let order = || {
            let (address, properties) = ("a".to_owned(), Bytes::new());
            ReplyOrder::Send(Reply { address, properties, body: body.clone() })
        };
        let dropped = || metrics.replies_dropped.load(Ordering::Relaxed);
        let mut others = Replies::new(registry);
        others.perform(&mut (0..6).map(|_| order()).collect(), &metrics);
        assert_eq!(dropped(), 3, "the address of each counts as well");
        let mut received = Vec::new();
        slow.recv(&mut received).await;
        assert_eq!(received.len(), 1);
        others.perform(&mut vec![order()], &metrics);
        assert_eq!(dropped(), 3, "what was taken makes room");
    }

    #[tokio::test]
    async fn all_that_waits_is_bounded_and_a_session_that_takes_its_replies_has_room() {
        const REPLY: usize = 8 << 20;
        let registry = registry();
        let waiting = || registry.waiting.load(Ordering::Relaxed);
        let mut slow: Vec<_> = (0..20).map(|n| at(&registry, &n.to_string())).collect();
        for number in 0..slow.len() {
            while fits(&registry, &number.to_string(), REPLY) {}
        }
        assert!(waiting() <= TOGETHER_MAX, "{}", waiting());
        assert!(waiting() > TOGETHER_MAX / 2);
        let mut reader = at(&registry, "reader");
        let mut received = Vec::new();
        for _ in 0..1000 {
            assert!(fits(&registry, "reader", limits::REPLIES_WAITING_BYTES_FLOOR / 2));
            reader.recv(&mut received).await;
        }
        assert_eq!(received.len(), 1000);
        slow[0].recv(&mut received).await;
        assert!(fits(&registry, "reader", REPLY), "what was taken makes room for all");
        drop((slow, reader));
        assert_eq!(waiting(), 0, "what waited goes with its session");
    }

    #[tokio::test]
    async fn a_reply_larger_than_every_bound_finds_room_where_nothing_waits() {
        let registry = Arc::new(Registry::new(Arc::default(), 1 << 20));
        let mut replies = [at(&registry, "a"), at(&registry, "b")];
        assert!(fits(&registry, "a", 2 << 20));
        assert!(!fits(&registry, "a", 2 << 20));
        assert!(!fits(&registry, "b", 2 << 20), "it is the only one");
        let mut received = Vec::new();
        replies[0].recv(&mut received).await;
        assert!(fits(&registry, "b", 2 << 20));
    }

    #[tokio::test]
    async fn a_session_takes_only_so_many_bytes_at_once() {
        let registry = registry();
        let mut reader = at(&registry, "a");
        for _ in 0..4 {
            assert!(fits(&registry, "a", limits::REPLIES_TAKEN_BYTES));
        }
        let mut received = Vec::new();
        reader.recv(&mut received).await;
        assert_eq!(received.len(), 1);
    }
}
