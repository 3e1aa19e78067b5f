//! Connections are asked what they are doing. Only who asks pays for it: a connection that nobody asks looks at one
//! flag when it wakes, and takes no lock.
//!
//! ```text
//!   asker: leaves its question, rings ──> connection: hears, takes all questions, answers each ──> asker
//!      ^──gives up after DESCRIPTION_WAIT: what it asked is dropped at the next question or answer
//! ```
//!
//! A connection that waits for a shard hears nothing meanwhile; one whose client takes no bytes does.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use machine::{QueueId, SessionId};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use crate::connection_id::ConnectionId;
use crate::limits;
use crate::session::PauseOrder;
use crate::session::describe::{
    ChannelDescription, ConnectionDescription, ConnectionLine, ConsumerDescription,
};
use crate::session::driver::Driver;

/// The open connections of a node, each with what it is asked.
#[derive(Debug, Default)]
pub struct Connections(Mutex<BTreeMap<ConnectionId, Asking>>);

/// Why something is not described.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotDescribed {
    NoConnection,
    NoChannel,
    NoConsumer,
    /// The connection did not answer in time.
    Late,
    /// Too many others have asked and wait.
    Busy,
}

/// Some of the connections of a node, in the order in which they came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionPage {
    pub connections: Vec<ListedConnection>,
    /// All that are open now.
    pub count: usize,
    /// The last one here, if more follow: the next page is what comes after it.
    pub next: Option<ConnectionId>,
}

/// A connection in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedConnection {
    pub id: ConnectionId,
    pub peer: SocketAddr,
    pub is_tls: bool,
    /// When it was accepted, milliseconds since 1970.
    pub since_ms: u64,
    /// Why it does not say more, or what it is doing.
    pub line: Result<ConnectionLine, NotDescribed>,
}

async fn within<T>(
    deadline: Instant,
    answer: Result<oneshot::Receiver<T>, NotDescribed>,
) -> Result<T, NotDescribed> {
    match timeout_at(deadline, answer?).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(_)) => Err(NotDescribed::NoConnection),
        Err(_) => Err(NotDescribed::Late),
    }
}

/// Since when messages are held: by queue and number, milliseconds since 1970.
pub type HeldSince = BTreeMap<(QueueId, u64), u64>;

/// What a connection is asked, and where its answer goes.
#[derive(Debug)]
pub(crate) enum Question {
    Line(oneshot::Sender<ConnectionLine>),
    Connection(oneshot::Sender<ConnectionDescription>),
    Channel(u16, oneshot::Sender<Option<ChannelDescription>>),
    Consumer(u16, String, oneshot::Sender<Option<ConsumerDescription>>),
    /// Since when it holds messages in the name of a consumer.
    Held(u64, BTreeSet<(QueueId, u64)>, oneshot::Sender<HeldSince>),
    /// An operator wants it to end, for this reason.
    Close(String, oneshot::Sender<()>),
    /// An operator pauses a consumer, or lets it go on: whether it was paused before.
    Pause(PauseOrder, oneshot::Sender<Option<bool>>),
}

/// What operators want of a connection.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    /// It is to end, for this reason.
    pub(crate) close: Option<String>,
    pub(crate) pauses: Vec<PauseOrder>,
}

impl Question {
    /// Whether somebody waits for the answer.
    fn is_open(&self) -> bool {
        match self {
            Self::Line(reply) => !reply.is_closed(),
            Self::Connection(reply) => !reply.is_closed(),
            Self::Channel(_, reply) => !reply.is_closed(),
            Self::Consumer(_, _, reply) => !reply.is_closed(),
            Self::Held(_, _, reply) => !reply.is_closed(),
            Self::Close(_, reply) => !reply.is_closed(),
            Self::Pause(_, reply) => !reply.is_closed(),
        }
    }

    /// Who asked may have gone: nobody is left to tell then. What is to be done goes to `orders`.
    fn answer(self, driver: &Driver, orders: &mut Orders) {
        let session = driver.session();
        match self {
            Self::Line(reply) => drop(reply.send(driver.describe_line())),
            Self::Connection(reply) => {
                let described = session.describe(driver.waiting_bytes());
                let line = driver.describe_line();
                drop(reply.send(ConnectionDescription { line, ..described }));
            }
            Self::Channel(number, reply) => drop(reply.send(session.describe_channel(number))),
            Self::Consumer(channel, tag, reply) => {
                drop(reply.send(session.describe_consumer(channel, &tag)));
            }
            Self::Held(number, messages, reply) => {
                drop(reply.send(session.messages_held_since(number, &messages)));
            }
            Self::Close(reason, reply) => {
                let _ = reply.send(());
                orders.close = Some(reason);
            }
            Self::Pause(order, reply) => {
                let was_paused = session.is_consumer_paused(order.channel, &order.tag);
                let _ = reply.send(was_paused);
                if was_paused.is_some() {
                    orders.pauses.push(order);
                }
            }
        }
    }
}

/// What is known of a connection without asking it, and what it is asked.
#[derive(Debug)]
struct Asking {
    peer: SocketAddr,
    is_tls: bool,
    since_ms: u64,
    /// `None`: it has been rung, and has not come to it.
    bell: Option<oneshot::Sender<()>>,
    questions: Vec<Question>,
}

impl Asking {
    fn ask(&mut self, question: Question) -> Result<(), NotDescribed> {
        self.questions.retain(Question::is_open);
        if self.questions.len() >= limits::QUESTIONS_WAITING_MAX {
            return Err(NotDescribed::Busy);
        }
        self.questions.push(question);
        if let Some(bell) = self.bell.take() {
            // The connection leaves this list before its ear is gone.
            let _ = bell.send(());
        }
        Ok(())
    }
}

/// Some connections that were asked for their lines.
struct Asked {
    asked: Vec<AskedOne>,
    count: usize,
    /// The last that was asked, if others follow.
    has_more: Option<ConnectionId>,
}

struct AskedOne {
    id: ConnectionId,
    peer: SocketAddr,
    is_tls: bool,
    since_ms: u64,
    answer: Result<oneshot::Receiver<ConnectionLine>, NotDescribed>,
}

impl Connections {
    /// The connections that came after `after`, at most `limit` and at most [`limits::LISTED_CONNECTIONS_MAX`]. Takes no
    /// longer than [`limits::DESCRIPTION_WAIT`], whatever they are doing.
    pub async fn list(&self, after: Option<ConnectionId>, limit: usize) -> ConnectionPage {
        let deadline = Instant::now() + limits::DESCRIPTION_WAIT;
        let limit = limit.clamp(1, limits::LISTED_CONNECTIONS_MAX);
        let Asked { asked, count, has_more } = self.ask_some(after, limit);
        let mut connections = Vec::with_capacity(asked.len());
        for AskedOne { id, peer, is_tls, since_ms, answer } in asked {
            // All have the same deadline: they answer while the first is waited for.
            let line = within(deadline, answer).await;
            // Who has left meanwhile is in no list.
            if line != Err(NotDescribed::NoConnection) {
                connections.push(ListedConnection { id, peer, is_tls, since_ms, line });
            }
        }
        ConnectionPage { connections, count, next: has_more }
    }

    /// What a connection is doing.
    ///
    /// # Errors
    /// There is no such connection, or it does not answer.
    pub async fn describe(&self, id: ConnectionId) -> Result<ConnectionDescription, NotDescribed> {
        self.ask(id, Question::Connection).await
    }

    /// What a channel of a connection is doing.
    ///
    /// # Errors
    /// There is no such connection or channel, or it does not answer.
    pub async fn channel(
        &self,
        id: ConnectionId,
        number: u16,
    ) -> Result<ChannelDescription, NotDescribed> {
        let found = self.ask(id, |reply| Question::Channel(number, reply)).await?;
        found.ok_or(NotDescribed::NoChannel)
    }

    /// What a consumer of a channel is doing.
    ///
    /// # Errors
    /// There is no such connection or consumer, or it does not answer.
    pub async fn consumer(
        &self,
        id: ConnectionId,
        channel: u16,
        tag: &str,
    ) -> Result<ConsumerDescription, NotDescribed> {
        let tag = tag.to_owned();
        let found = self.ask(id, |reply| Question::Consumer(channel, tag, reply)).await?;
        found.ok_or(NotDescribed::NoConsumer)
    }

    /// Since when a connection holds these messages, by queue and number, in the name of a number that it has drawn for a
    /// consumer or for what a channel fetched: milliseconds since 1970 at least. Those that came since its last look, a
    /// minute ago at most, are not in the answer.
    ///
    /// # Errors
    /// There is no such connection, or it does not answer.
    pub async fn held_since(
        &self,
        id: ConnectionId,
        number: u64,
        messages: BTreeSet<(QueueId, u64)>,
    ) -> Result<HeldSince, NotDescribed> {
        self.ask(id, |reply| Question::Held(number, messages, reply)).await
    }

    /// Ends a connection: its client is told `connection.close` 320 with the reason.
    ///
    /// # Errors
    /// There is no such connection, or it does not answer.
    pub async fn close(&self, id: ConnectionId, reason: &str) -> Result<(), NotDescribed> {
        self.ask(id, |reply| Question::Close(reason.to_owned(), reply)).await
    }

    /// Pauses a consumer, or lets it go on. Whether it was paused before: then it stays paused by whoever was first.
    ///
    /// # Errors
    /// There is no such connection or consumer, or it does not answer.
    pub async fn pause(&self, id: ConnectionId, order: PauseOrder) -> Result<bool, NotDescribed> {
        let found = self.ask(id, |reply| Question::Pause(order, reply)).await?;
        found.ok_or(NotDescribed::NoConsumer)
    }

    async fn ask<T>(
        &self,
        id: ConnectionId,
        question: impl FnOnce(oneshot::Sender<T>) -> Question,
    ) -> Result<T, NotDescribed> {
        let deadline = Instant::now() + limits::DESCRIPTION_WAIT;
        let (reply, answer) = oneshot::channel();
        self.leave(id, question(reply))?;
        within(deadline, Ok(answer)).await
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ConnectionId, Asking>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves a question with a connection.
    fn leave(&self, id: ConnectionId, question: Question) -> Result<(), NotDescribed> {
        self.lock().get_mut(&id).ok_or(NotDescribed::NoConnection)?.ask(question)
    }

    /// Asks the first `limit` after `after` for their lines.
    fn ask_some(&self, after: Option<ConnectionId>, limit: usize) -> Asked {
        let mut all = self.lock();
        let count = all.len();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut following = all.range_mut((from, Bound::Unbounded));
        let mut asked = Vec::with_capacity(limit.min(count));
        for (id, asking) in following.by_ref().take(limit) {
            let (reply, answer) = oneshot::channel();
            let answer = asking.ask(Question::Line(reply)).map(|()| answer);
            let Asking { peer, is_tls, since_ms, .. } = *asking;
            asked.push(AskedOne { id: *id, peer, is_tls, since_ms, answer });
        }
        let has_more = following.next().and(asked.last().map(|asked| asked.id));
        Asked { asked, count, has_more }
    }
}

/// Where a connection hears that it is asked, and who it is to those who ask.
#[derive(Debug)]
pub(crate) struct Ear {
    connections: Arc<Connections>,
    pub(crate) id: ConnectionId,
    pub(crate) session: SessionId,
    pub(crate) peer: SocketAddr,
    rung: oneshot::Receiver<()>,
}

impl Ear {
    /// From now on the connection may be asked.
    pub(crate) fn open(
        connections: &Arc<Connections>,
        session: SessionId,
        (peer, is_tls): (SocketAddr, bool),
        since_ms: u64,
    ) -> Self {
        let id = ConnectionId::of(session).expect("a session of a client has a node");
        let (bell, rung) = oneshot::channel();
        let asking = Asking { peer, is_tls, since_ms, bell: Some(bell), questions: Vec::new() };
        connections.lock().insert(id, asking);
        Self { connections: Arc::clone(connections), id, session, peer, rung }
    }

    /// Waits until the connection is asked something. [`Self::answer`] is to follow.
    pub(crate) async fn asked(&mut self) {
        if (&mut self.rung).await.is_err() {
            // It is closed: nobody can ask any more.
            std::future::pending::<()>().await;
        }
    }

    /// Answers whatever was asked so far. Gives what is to be done.
    pub(crate) fn answer(&mut self, driver: &Driver) -> Orders {
        let questions = match self.connections.lock().get_mut(&self.id) {
            Some(asking) => {
                let (bell, rung) = oneshot::channel();
                asking.bell = Some(bell);
                self.rung = rung;
                std::mem::take(&mut asking.questions)
            }
            None => Vec::new(),
        };
        let open = questions.into_iter().filter(Question::is_open);
        let mut orders = Orders::default();
        open.for_each(|question| question.answer(driver, &mut orders));
        orders
    }

    /// Nobody can ask any more. Who waits hears that the connection is gone.
    pub(crate) fn close(&mut self) {
        self.connections.lock().remove(&self.id);
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use machine::NodeId;

    use super::*;
    use crate::config::Config;
    use crate::session::Session;

    const PEER: &str = "10.0.0.9:4000";

    fn ear(connections: &Arc<Connections>, number: u64) -> Ear {
        let first = cluster::shard::Shard::first_session(NodeId(1)).0;
        let session = SessionId(first + number - 1);
        Ear::open(connections, session, (PEER.parse().unwrap(), false), 7)
    }

    fn driver(of: &Ear) -> Driver {
        let (now, config) = (std::time::Instant::now(), Arc::new(Config::default()));
        let session = Session::new(config, of.session, NodeId(1), of.peer, [0; 32], now, 7);
        Driver::new(session, std::time::Duration::from_secs(1))
    }

    fn question(number: u16) -> (Question, oneshot::Receiver<Option<ChannelDescription>>) {
        let (reply, answer) = oneshot::channel();
        (Question::Channel(number, reply), answer)
    }

    #[tokio::test]
    async fn a_connection_hears_all_its_questions_at_once_and_can_be_asked_again() {
        let connections = Arc::default();
        let mut ear = ear(&connections, 1);
        let driver = driver(&ear);
        for _ in 0..2 {
            let (reply, line) = oneshot::channel();
            connections.leave(ear.id, Question::Line(reply)).unwrap();
            let (asked, channel) = question(1);
            connections.leave(ear.id, asked).unwrap();
            ear.asked().await;
            ear.answer(&driver);
            assert_eq!(line.await.unwrap().peer, ear.peer);
            assert_eq!(channel.await.unwrap(), None, "there is no such channel");
        }
    }

    #[tokio::test]
    async fn who_is_stuck_is_waited_for_until_the_deadline() {
        let connections = Arc::default();
        let ear = ear(&connections, 1);
        let (asked, answer) = question(1);
        connections.leave(ear.id, asked).unwrap();
        let deadline = Instant::now() + std::time::Duration::from_millis(5);
        assert_eq!(within(deadline, Ok(answer)).await, Err(NotDescribed::Late));
    }

    #[tokio::test]
    async fn few_may_wait_for_a_connection_and_those_who_give_up_make_room() {
        let connections = Arc::default();
        let ear = ear(&connections, 1);
        let mut waiting = Vec::new();
        for _ in 0..limits::QUESTIONS_WAITING_MAX {
            let (asked, answer) = question(1);
            connections.leave(ear.id, asked).unwrap();
            waiting.push(answer);
        }
        let one_more = || connections.leave(ear.id, question(1).0);
        assert_eq!(one_more(), Err(NotDescribed::Busy));
        drop(waiting.pop());
        assert_eq!(one_more(), Ok(()));
    }

    #[tokio::test]
    async fn who_waits_for_a_connection_that_ends_hears_so() {
        let connections = Arc::default();
        let ear = ear(&connections, 1);
        let (id, (asked, answer)) = (ear.id, question(1));
        connections.leave(id, asked).unwrap();
        drop(ear);
        let deadline = Instant::now() + limits::DESCRIPTION_WAIT;
        assert_eq!(within(deadline, Ok(answer)).await, Err(NotDescribed::NoConnection));
        assert_eq!(connections.leave(id, question(1).0), Err(NotDescribed::NoConnection));
    }

    #[test]
    fn connections_are_listed_page_by_page() {
        let connections: Arc<Connections> = Arc::default();
        let ears: Vec<Ear> = (1..=5).map(|number| ear(&connections, number)).collect();
        let page = |after: Option<ConnectionId>| {
            let Asked { asked, count, has_more } = connections.ask_some(after, 2);
            assert_eq!(count, 5);
            (asked.iter().map(|asked| asked.id.number).collect::<Vec<_>>(), has_more)
        };
        let (numbers, next) = page(None);
        assert_eq!((numbers, next), (vec![1, 2], Some(ears[1].id)));
        let (numbers, next) = page(next);
        assert_eq!((numbers, next), (vec![3, 4], Some(ears[3].id)));
        assert_eq!(page(next), (vec![5], None));
        assert_eq!(page(Some(ears[4].id)), (vec![], None));
    }
}
