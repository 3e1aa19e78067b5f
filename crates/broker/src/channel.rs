//! One channel: which method may come now, which of its parts does it, and how the channel ends.
//!
//! ```text
//!   open ──channel.close──> leaving ──consumers detached──> (close-ok, gone)
//!     └────our error──────> closing ──close-ok────────────> (gone)
//! ```
//!
//! A channel does one thing at a time. While it waits for an answer, the frames that come for it are set
//! aside and taken up afterwards, so that what a client sends in a row is done in a row; the other
//! channels go on.
//!
//! Its parts keep their own state and know nothing of each other's. Each is handed its `Caller` and what else of the
//! connection it may touch, and gives back what the channel has to wait for.

pub(crate) mod ack_timeout;
pub(crate) mod caller;
mod closing;
pub(crate) mod confirms;
pub(crate) mod consume;
pub(crate) mod content;
pub(crate) mod deliver;
pub(crate) mod direct_reply_to;
pub(crate) mod get;
mod offset;
mod partition;
pub(crate) mod publish;
pub(crate) mod topology;
pub(crate) mod tx;
pub(crate) mod unacked;
mod waiting;

use std::net::SocketAddr;
use std::time::Duration;

use amqp::{Decoder, Frame, Method, ReplyCode, basic, channel, tx as tx_wire};
use bytes::BytesMut;
use cluster::{Answer, Delivery};
use machine::{Catalog, GroupId, Outcome, QueueId};

use self::caller::{Parts, split};
use self::consume::Shared;
use self::deliver::Deliveries;
use self::direct_reply_to::Replies;
use self::publish::{Mode, Publishing};
use self::topology::{Topology, bindings, exchanges};
use self::waiting::{Pending, Work};
use crate::capacity::Candidate;
use crate::config::Config;
use crate::connection::ConnectionState;
use crate::connection::consumers::ChannelRoom;
use crate::connection::step::Step;
use crate::connection::tickets::ChannelRef;
use crate::errors::{Failure, unexpected};
use crate::session::boundary::Reply;

/// Class and method of `basic.publish`.
pub(crate) const PUBLISH: (u16, u16) = (60, 40);
/// Class and method of `channel.close-ok`.
pub(crate) const CLOSE_OK: (u16, u16) = (20, 41);

/// Where a channel is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Open,
    /// We sent `channel.close`: everything but its answer is dropped.
    Closing,
    /// Over: its number is free.
    Gone,
}

/// One channel of a connection.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) at: ChannelRef,
    pub(crate) state: State,
    publishing: Publishing,
    deliveries: Deliveries,
    replies: Replies,
    topology: Topology,
    work: Work,
}

/// What the channel waits for after a method. None: it is done.
type Next = Result<Option<Pending>, Failure>;

impl Channel {
    pub(crate) fn new(at: ChannelRef) -> Self {
        Self {
            at,
            state: State::Open,
            publishing: Publishing::default(),
            deliveries: Deliveries::default(),
            replies: Replies::default(),
            topology: Topology::default(),
            work: Work::default(),
        }
    }

    /// The client has other rights now: nothing that it was allowed before is taken to be allowed.
    pub(crate) fn rights_changed(&mut self) {
        self.publishing.forget_seen();
    }

    /// Takes a frame for this channel, `raw` being its bytes and `rest` what follows it in the buffer.
    /// Says how much of `rest` it took as well.
    #[inline]
    pub(crate) fn frame(
        &mut self,
        connection: &mut ConnectionState,
        step: &mut Step<'_>,
        decoder: &Decoder,
        frame: &Frame<'_>,
        raw: &[u8],
        rest: &[u8],
    ) -> Result<usize, Failure> {
        if self.state == State::Closing {
            self.frame_while_closing(connection, step, frame);
            return Ok(0);
        }
        if self.work.is_pending() {
            self.work.set_aside(raw, &mut connection.publishers.unfinished);
            return Ok(0);
        }
        let (mut caller, Parts { publishers, .. }) = split(connection, self.at, step);
        let caller = &mut caller;
        let replies = &self.replies;
        let mut ids = PUBLISH;
        let done = match *frame {
            Frame::Method { payload, .. } => {
                ids = Method::peek_ids(payload).unwrap_or_default();
                if let Some(failure) = self.publishing.content_missing() {
                    Err(failure)
                } else if ids == PUBLISH {
                    self.publishing.publish(caller, publishers, replies, decoder, payload, rest)
                } else {
                    self.other_method(connection, step, payload, ids).map(|()| 0)
                }
            }
            Frame::Header { class_id, body_bytes, properties, .. } => {
                let announced = (class_id, body_bytes);
                let publishing = &mut self.publishing;
                publishing.header(caller, publishers, replies, announced, properties).map(|()| 0)
            }
            Frame::Body { payload, .. } => {
                self.publishing.body(caller, publishers, replies, payload).map(|()| 0)
            }
            Frame::Heartbeat { .. } => return Err(heartbeat_here()),
        };
        done.or_else(|failure| self.refused(connection, step, failure, ids).map(|()| 0))
    }

    /// Any method but a publish.
    fn other_method(
        &mut self,
        connection: &mut ConnectionState,
        step: &mut Step<'_>,
        payload: &[u8],
        ids: (u16, u16),
    ) -> Result<(), Failure> {
        let method = Method::decode(payload)?;
        let pending = self.method(connection, step, &method)?;
        self.work.wait_for(pending, ids);
        Ok(())
    }

    fn method(
        &mut self,
        connection: &mut ConnectionState,
        step: &mut Step<'_>,
        method: &Method<'_>,
    ) -> Next {
        let deliveries = &mut self.deliveries;
        let (mut caller, parts) = split(connection, self.at, step);
        let caller = &mut caller;
        let Parts { consumers, publishers, names, ack_timeout, reply_addresses } = parts;
        match method {
            Method::BasicAck(_) | Method::BasicNack(_) | Method::BasicReject(_) => {
                return self.settle(connection, step, method);
            }
            Method::BasicGet(get) => {
                let (topology, unacked) = (&self.topology, &mut deliveries.unacked);
                let fetch = get::get(caller, unacked, topology, consumers, ack_timeout, get)?;
                return Ok(Some(Pending::Get(fetch)));
            }
            Method::BasicQos(qos) => deliveries.qos(caller, consumers, qos)?,
            Method::BasicConsume(consume) => {
                let addresses = reply_addresses;
                let shared = Shared { names, addresses, consumers, ack_timeout };
                let (topology, replies) = (&self.topology, &mut self.replies);
                let next = deliveries.consume(caller, topology, replies, shared, consume)?;
                return Ok(next.map(Pending::Attach));
            }
            Method::BasicCancel(cancel) => {
                let replies = &mut self.replies;
                let next = deliveries.cancel(caller, replies, reply_addresses, consumers, cancel);
                return Ok(next.map(Pending::Detach));
            }
            Method::BasicRecover(recover) => {
                deliveries.recover(caller, consumers, recover.requeue)?;
                caller.send(&Method::BasicRecoverOk(basic::RecoverOk));
            }
            Method::BasicRecoverAsync(recover) => {
                deliveries.recover(caller, consumers, recover.requeue)?;
            }
            Method::ConfirmSelect(select) => self.publishing.confirm_select(caller, select)?,
            Method::TxSelect(_) => self.publishing.tx_select(caller)?,
            Method::TxCommit(_) => {
                let unfinished = &mut publishers.unfinished;
                let next = self.publishing.take_tx()?.commit(caller, consumers, unfinished)?;
                return Ok(next.map(Pending::Tx));
            }
            Method::TxRollback(_) => {
                let unfinished = &mut publishers.unfinished;
                self.publishing.take_tx()?.roll_back(&mut deliveries.unacked, unfinished);
                caller.send(&Method::TxRollbackOk(tx_wire::RollbackOk));
            }
            Method::ChannelFlow(flow) => {
                if !flow.active {
                    return Err(Failure::connection(ReplyCode::NotImplemented, "active=false"));
                }
                caller.send(&Method::ChannelFlowOk(channel::FlowOk { active: true }));
            }
            Method::ChannelClose(_) => return Ok(self.leave(connection, step)),
            Method::ChannelOpen(_) => {
                let text = "second 'channel.open' seen";
                return Err(Failure::connection(ReplyCode::ChannelError, text));
            }
            other => return self.topology_method(connection, step, other),
        }
        Ok(None)
    }

    /// `basic.ack`, `basic.nack` and `basic.reject`.
    #[inline]
    fn settle(
        &mut self,
        connection: &mut ConnectionState,
        step: &mut Step<'_>,
        method: &Method<'_>,
    ) -> Next {
        let (tags, outcome) = match method {
            Method::BasicAck(ack) => ((ack.delivery_tag, ack.multiple), Outcome::Done),
            Method::BasicNack(nack) => {
                ((nack.delivery_tag, nack.multiple), refused_as(nack.requeue))
            }
            Method::BasicReject(reject) => {
                ((reject.delivery_tag, false), refused_as(reject.requeue))
            }
            other => return Err(unexpected(other.name())),
        };
        let (mut caller, Parts { consumers, .. }) = split(connection, self.at, step);
        let mode = &mut self.publishing.mode;
        self.deliveries.settle(&mut caller, consumers, mode, tags, outcome)?;
        Ok(None)
    }

    /// A method of the classes queue and exchange, or one that is none of a channel's.
    fn topology_method(
        &mut self,
        connection: &mut ConnectionState,
        step: &mut Step<'_>,
        method: &Method<'_>,
    ) -> Next {
        let topology = &mut self.topology;
        let (mut caller, Parts { consumers, names, .. }) = split(connection, self.at, step);
        let caller = &mut caller;
        let next = match method {
            Method::QueueDeclare(declare) => topology.declare_queue(caller, names, declare),
            Method::QueueBind(bind) => topology.bind_queue(caller, consumers, bind),
            Method::QueueUnbind(unbind) => topology.unbind_queue(caller, unbind),
            Method::QueuePurge(purge) => topology.purge_queue(caller, purge),
            Method::QueueDelete(delete) => topology.delete_queue(caller, delete),
            Method::ExchangeDeclare(declare) => exchanges::declare_exchange(caller, declare),
            Method::ExchangeDelete(delete) => exchanges::delete_exchange(caller, delete),
            Method::ExchangeBind(bind) => bindings::bind_exchange(caller, consumers, bind),
            Method::ExchangeUnbind(unbind) => bindings::unbind_exchange(caller, unbind),
            other => Err(unexpected(other.name())),
        };
        next.map(|next| next.map(Pending::Topology))
    }

    /// What the channel waited for has come.
    pub(crate) fn answered(
        &mut self,
        connection: &mut ConnectionState,
        step: &mut Step<'_>,
        answer: Answer,
    ) -> Result<(), Failure> {
        if self.state != State::Open {
            return Ok(());
        }
        let Some(pending) = self.work.take() else {
            return self.go_on(connection, step, Ok(None));
        };
        let next = self.next(connection, step, pending, answer);
        self.go_on(connection, step, next)
    }

    /// A queue takes a message of the transaction that is being committed, or does not.
    pub(crate) fn reserved(
        &mut self,
        connection: &mut ConnectionState,
        step: &mut Step<'_>,
        group: GroupId,
        message: Option<&Candidate>,
    ) -> Result<(), Failure> {
        if self.state != State::Open {
            return Ok(());
        }
        let Some(pending) = self.work.take_reserving() else { return Ok(()) };
        let (mut caller, Parts { consumers, publishers, .. }) = split(connection, self.at, step);
        let caller = &mut caller;
        let next = pending.reserved(caller, consumers, &mut publishers.unfinished, group, message);
        self.go_on(connection, step, next.map(|next| next.map(Pending::Tx)))
    }

    /// Waits for what is next, or refuses what failed; with nothing more to wait for, the frames that were set aside
    /// are next.
    fn go_on(
        &mut self,
        connection: &mut ConnectionState,
        step: &mut Step<'_>,
        next: Next,
    ) -> Result<(), Failure> {
        let ids = self.work.ids();
        let result = match next {
            Ok(pending) => {
                self.work.wait_for(pending, ids);
                Ok(())
            }
            Err(failure) => self.refused(connection, step, failure, ids),
        };
        if self.work.is_resumable() {
            connection.resumable.push(self.at);
        }
        result
    }

    fn next(
        &mut self,
        connection: &mut ConnectionState,
        step: &mut Step<'_>,
        pending: Pending,
        answer: Answer,
    ) -> Next {
        let deliveries = &mut self.deliveries;
        let (mut caller, parts) = split(connection, self.at, step);
        let caller = &mut caller;
        let Parts { consumers, ack_timeout, publishers, .. } = parts;
        match (pending, answer) {
            (Pending::Tx(tx), answer) => {
                return tx.answered(caller, &answer).map(|next| next.map(Pending::Tx));
            }
            (Pending::Leave { unanswered }, _) if unanswered > 1 => {
                return Ok(Some(Pending::Leave { unanswered: unanswered - 1 }));
            }
            (Pending::Leave { .. }, _) => self.left(connection, step),
            (Pending::Get(fetch), Answer::Got { delivery, ready, .. }) => {
                let unacked = &mut deliveries.unacked;
                let next = fetch.got(caller, unacked, ack_timeout, delivery.as_ref(), ready);
                return Ok(next.map(Pending::Get));
            }
            (Pending::Attach(attaching), Answer::Attached { result, .. }) => {
                let next = deliveries.attached(caller, consumers, attaching, result)?;
                return Ok(next.map(Pending::Attach));
            }
            (Pending::Detach(detaching), _) => {
                let next = deliveries.detached(caller, consumers, detaching);
                return Ok(next.map(Pending::Detach));
            }
            (Pending::Topology(pending), answer) => {
                let chance = &mut publishers.chance;
                let next = self.topology.answered(caller, chance, pending, answer)?;
                return Ok(next.map(Pending::Topology));
            }
            (Pending::Get(_) | Pending::Attach(_), answer) => {
                return Err(topology::answers::unexpected_answer(&answer));
            }
        }
        Ok(None)
    }

    /// Sends what a queue delivered to one of this channel's consumers.
    pub(crate) fn deliver(
        &mut self,
        connection: &mut ConnectionState,
        step: &mut Step<'_>,
        delivery: &Delivery,
    ) {
        let (mut caller, parts) = split(connection, self.at, step);
        let caller = &mut caller;
        let Parts { consumers, ack_timeout, .. } = parts;
        self.deliveries.deliver(caller, consumers, ack_timeout, delivery);
    }

    /// A reply has come.
    pub(crate) fn deliver_reply(
        &mut self,
        connection: &mut ConnectionState,
        step: &mut Step<'_>,
        reply: &Reply,
    ) {
        let unacked = &mut self.deliveries.unacked;
        let (mut caller, _) = split(connection, self.at, step);
        let caller = &mut caller;
        self.replies.deliver(caller, || unacked.pass(1), reply);
    }

    /// The queue of a consumer is gone.
    pub(crate) fn cancelled(
        &mut self,
        connection: &mut ConnectionState,
        step: &mut Step<'_>,
        queue: QueueId,
        number: u64,
    ) {
        let (mut caller, Parts { consumers, .. }) = split(connection, self.at, step);
        let caller = &mut caller;
        self.deliveries.cancelled(caller, consumers, queue, number);
    }

    /// A part of a run of publishes is logged, or will not be.
    pub(crate) fn logged(&mut self, touched: &mut Vec<u16>, run: u64, is_logged: bool) {
        self.publishing.answered(self.at.number, touched, run, is_logged);
    }

    /// Whether all of a run of publishes is logged, if that is known now.
    pub(crate) fn outcome(&self, run: u64) -> Option<bool> {
        self.publishing.outcome(run)
    }

    /// Tells the client what became of its publishes. Gives whether some still wait behind others.
    pub(crate) fn tell_confirms(
        &mut self,
        connection: &mut ConnectionState,
        step: &mut Step<'_>,
        is_late: bool,
    ) -> bool {
        let is_open = self.state == State::Open;
        let (mut caller, _) = split(connection, self.at, step);
        let caller = &mut caller;
        self.publishing.tell_confirms(caller, is_open, is_late)
    }

    /// How its publishes are answered, and what it was sent.
    pub(crate) fn look_inside(&self) -> (&Mode, &Deliveries) {
        (&self.publishing.mode, &self.deliveries)
    }

    /// What this channel's consumers may still be given.
    pub(crate) fn room(&mut self, peer: SocketAddr) -> ChannelRoom {
        self.deliveries.say_if_full(peer, self.at.number);
        self.deliveries.room()
    }

    /// Looks how long messages are out, and gives the time that one has exceeded. None of the outer: nothing is out.
    pub(crate) fn look_at_unacked(
        &mut self,
        now: Duration,
        config: &Config,
        catalog: &Catalog,
    ) -> Option<Option<Duration>> {
        if self.state != State::Open || self.deliveries.unacked.count() == 0 {
            return None;
        }
        Some(self.deliveries.exceeded(now, config, catalog))
    }

    /// Frames that were set aside, now that the channel waits for nothing.
    pub(crate) fn take_deferred(&mut self, connection: &mut ConnectionState) -> Option<BytesMut> {
        self.work.take_deferred(&mut connection.publishers.unfinished)
    }

    /// What was set aside is not done.
    pub(crate) fn drop_deferred(&mut self, connection: &mut ConnectionState) {
        self.work.drop_deferred(&mut connection.publishers.unfinished);
    }
}

/// What becomes of messages that a client refuses.
fn refused_as(requeue: bool) -> Outcome {
    if requeue { Outcome::Requeue } else { Outcome::Rejected }
}

fn heartbeat_here() -> Failure {
    Failure::connection(ReplyCode::UnexpectedFrame, "heartbeat on a channel other than 0")
}
