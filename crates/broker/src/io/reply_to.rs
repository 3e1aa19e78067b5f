//! The node's registry of reply addresses: which session's mailbox a direct reply goes to.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;

use crate::limits;
use crate::metrics::Metrics;
use crate::session::{Reply, ReplyAddresses, ReplyOrder};

/// Every open reply address of the node.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    mailboxes: Mutex<HashMap<String, Mailbox>>,
}

/// The way to one session.
#[derive(Clone, Debug)]
struct Mailbox {
    sender: mpsc::Sender<Reply>,
    /// Bytes of what waits in it.
    waiting: Arc<AtomicUsize>,
}

impl Mailbox {
    /// False: there is no room, or nobody.
    fn put(&self, reply: Reply) -> bool {
        let bytes = bytes_of(&reply);
        let before = self.waiting.fetch_add(bytes, Ordering::Relaxed);
        let has_room = before == 0 || before + bytes <= limits::REPLIES_WAITING_BYTES_MAX;
        let is_sent = has_room && self.sender.try_send(reply).is_ok();
        if !is_sent {
            self.waiting.fetch_sub(bytes, Ordering::Relaxed);
        }
        is_sent
    }
}

fn bytes_of(reply: &Reply) -> usize {
    reply.address.len() + reply.properties.len() + reply.body.len()
}

impl Registry {
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
    mailbox: Option<(Mailbox, mpsc::Receiver<Reply>)>,
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
                    let (mailbox, _) = self.mailbox.get_or_insert_with(|| {
                        let (sender, receiver) = mpsc::channel(limits::REPLIES_WAITING_MAX);
                        (Mailbox { sender, waiting: Arc::default() }, receiver)
                    });
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

    /// Waits for replies; for ever if no address is open.
    pub(crate) async fn recv(&mut self, into: &mut Vec<Reply>) {
        match &mut self.mailbox {
            Some((mailbox, receiver)) => {
                let known = into.len();
                receiver.recv_many(into, 64).await;
                let bytes = into.iter().skip(known).map(bytes_of).sum();
                mailbox.waiting.fetch_sub(bytes, Ordering::Relaxed);
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

    fn reply(address: &str) -> ReplyOrder {
        let address = address.to_owned();
        ReplyOrder::Send(Reply { address, properties: Bytes::new(), body: Bytes::new() })
    }

    #[tokio::test]
    async fn replies_reach_their_session_and_an_address_goes_with_it() {
        let registry = Arc::new(Registry::default());
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
        let registry = Arc::new(Registry::default());
        let metrics = Metrics::default();
        let mut slow = Replies::new(Arc::clone(&registry));
        slow.perform(&mut vec![ReplyOrder::Open("a".to_owned())], &metrics);
        let mut orders: Vec<_> = (0..limits::REPLIES_WAITING_MAX + 3).map(|_| reply("a")).collect();
        Replies::new(registry).perform(&mut orders, &metrics);
        assert_eq!(metrics.replies_dropped.load(Ordering::Relaxed), 3);
    }

    #[tokio::test]
    async fn a_slow_reader_has_only_so_many_bytes_waiting() {
        let registry = Arc::new(Registry::default());
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
        assert_eq!(received.len(), 3);
        others.perform(&mut vec![order()], &metrics);
        assert_eq!(dropped(), 3, "what was taken makes room");
    }
}
