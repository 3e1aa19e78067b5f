//! One channel: which method may come now, who does it, and how the channel ends.
//!
//! ```text
//!   open ──channel.close──> leaving ──consumers detached──> (close-ok, gone)
//!     └────our error──────> closing ──close-ok────────────> (gone)
//! ```
//!
//! A channel does one thing at a time. While it waits for an answer, the frames that come for it are set
//! aside and taken up afterwards, so that what a client sends in a row is done in a row; the other
//! channels go on.

pub(crate) mod ack_timeout;
pub(crate) mod confirms;
pub(crate) mod consume;
pub(crate) mod content;
pub(crate) mod deliver;
pub(crate) mod direct_reply_to;
pub(crate) mod history;
pub(crate) mod publish;
pub(crate) mod store;
pub(crate) mod topology;
pub(crate) mod tx;
pub(crate) mod unacked;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use amqp::{Frame, Method, ReplyCode, basic, channel, confirm};
use bytes::BytesMut;
use cluster::{Answer, Request};
use machine::{GroupId, Outcome, QueueId};

use crate::capacity::Guarded;
use crate::channel::ack_timeout::Marks;
use crate::channel::confirms::{Confirms, Verdict};
use crate::channel::content::Content;
use crate::channel::deliver::Fetch;
use crate::channel::direct_reply_to::ReplyConsumer;
use crate::channel::history::Replay;
use crate::channel::publish::Seen;
use crate::channel::tx::Tx;
use crate::channel::unacked::Unacked;
use crate::connection::consumers::ChannelRoom;
use crate::connection::tickets::{ChannelRef, Groups, Waiting};
use crate::connection::{Trunk, Turn};
use crate::errors::{Failure, Scope, not_done, unexpected};
use crate::limits;

/// Class and method of `basic.publish`.
pub(crate) const PUBLISH: (u16, u16) = (60, 40);
const CLOSE: (u16, u16) = (20, 40);
/// Class and method of `channel.close-ok`.
pub(crate) const CLOSE_OK: (u16, u16) = (20, 41);

/// How publishes of a channel are answered.
#[derive(Debug)]
pub(crate) enum Mode {
    Plain,
    Confirm(Confirms),
    Tx(Box<Tx>),
}

/// Where a channel is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Open,
    /// We sent `channel.close`: everything but its answer is dropped.
    Closing,
    /// Over: its number is free.
    Gone,
}

/// What a channel waits for.
#[derive(Debug)]
pub(crate) enum Doing {
    /// A change of the catalog, and what the client is told then.
    Change {
        reply: Option<Method<'static>>,
    },
    /// A binding that brings a history with it.
    Bind {
        replay: Box<Replay>,
        reply: Option<Method<'static>>,
    },
    /// The history.
    Replay {
        replay: Box<Replay>,
        reply: Option<Method<'static>>,
    },
    DeclareQueue {
        queue: String,
        no_wait: bool,
    },
    Status {
        queue: String,
        no_wait: bool,
    },
    Purge {
        no_wait: bool,
    },
    CloseQueue {
        queue: String,
        id: QueueId,
        no_wait: bool,
    },
    DeleteQueue {
        count: u64,
        no_wait: bool,
    },
    Attach {
        number: u64,
        queue: String,
        no_wait: bool,
    },
    Detach {
        number: u64,
        tag: String,
        no_wait: bool,
    },
    Get(Fetch),
    /// Room for messages of a transaction.
    Admit {
        tx: Box<Tx>,
        unanswered: usize,
        is_partial: bool,
    },
    Commit {
        unanswered: usize,
        failed: bool,
        is_partial: bool,
    },
    /// The client's `channel.close`.
    Leave {
        unanswered: usize,
    },
}

/// One channel of a connection.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) at: ChannelRef,
    pub(crate) state: State,
    pub(crate) mode: Mode,
    pub(crate) content: Option<Box<Content>>,
    pub(crate) unacked: Unacked,
    pub(crate) marks: Marks,
    /// Consumer tags and the session's numbers for them.
    pub(crate) consumers: BTreeMap<String, u64>,
    /// For the next consumers; 0 is no limit.
    pub(crate) prefetch: u32,
    /// For all consumers together; 0 is no limit.
    pub(crate) prefetch_global: u32,
    pub(crate) last_queue: String,
    pub(crate) replies: Option<Box<ReplyConsumer>>,
    pub(crate) doing: Option<Doing>,
    /// The method that `doing` belongs to: what a refusal names.
    doing_ids: (u16, u16),
    deferred: BytesMut,
    /// Properties that were looked at last, if others of the same bytes need no second look.
    pub(crate) seen: Seen,
    /// Confirms have moved since the client was told last.
    pub(crate) is_touched: bool,
    has_said_full: bool,
}

impl Channel {
    pub(crate) fn new(at: ChannelRef) -> Self {
        Self {
            at,
            state: State::Open,
            mode: Mode::Plain,
            content: None,
            unacked: Unacked::default(),
            marks: Marks::default(),
            consumers: BTreeMap::new(),
            prefetch: 0,
            prefetch_global: 0,
            last_queue: String::new(),
            replies: None,
            doing: None,
            doing_ids: (0, 0),
            deferred: BytesMut::new(),
            seen: Seen::default(),
            is_touched: false,
            has_said_full: false,
        }
    }

    /// Takes a frame for this channel, `raw` being its bytes and `rest` what follows it in the buffer.
    /// Says how much of `rest` it took as well.
    #[inline]
    pub(crate) fn frame(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        decoder: &amqp::Decoder,
        frame: &Frame<'_>,
        raw: &[u8],
        rest: &[u8],
    ) -> Result<usize, Failure> {
        if self.state == State::Closing {
            self.frame_while_closing(trunk, turn, frame)?;
            return Ok(0);
        }
        if self.doing.is_some() {
            self.deferred.extend_from_slice(raw);
            trunk.deferred_bytes += raw.len();
            return Ok(0);
        }
        match *frame {
            Frame::Method { payload, .. } => {
                let ids = Method::peek_ids(payload).unwrap_or_default();
                if let Some(failure) = self.content_missing() {
                    return self.refused(trunk, turn, failure, ids).map(|()| 0);
                }
                if ids == PUBLISH {
                    return match self.publish(trunk, turn, decoder, payload, rest) {
                        Ok(used) => Ok(used),
                        Err(failure) => self.refused(trunk, turn, failure, ids).map(|()| 0),
                    };
                }
                let done = Method::decode(payload)
                    .map_err(Failure::from)
                    .and_then(|method| self.method(trunk, turn, &method));
                if self.doing.is_some() {
                    self.doing_ids = ids;
                }
                done.or_else(|failure| self.refused(trunk, turn, failure, ids)).map(|()| 0)
            }
            Frame::Header { class_id, body_bytes, properties, .. } => {
                let done = self.content_header(trunk, turn, class_id, body_bytes, properties);
                let ids = PUBLISH;
                done.or_else(|failure| self.refused(trunk, turn, failure, ids)).map(|()| 0)
            }
            Frame::Body { payload, .. } => {
                let done = self.content_body(trunk, turn, payload);
                let ids = PUBLISH;
                done.or_else(|failure| self.refused(trunk, turn, failure, ids)).map(|()| 0)
            }
            Frame::Heartbeat { .. } => Err(heartbeat_here()),
        }
    }

    /// Frames that were set aside, now that the channel waits for nothing.
    pub(crate) fn take_deferred(&mut self, trunk: &mut Trunk) -> Option<BytesMut> {
        if self.doing.is_some() || self.deferred.is_empty() {
            return None;
        }
        trunk.deferred_bytes -= self.deferred.len();
        Some(std::mem::take(&mut self.deferred))
    }

    fn frame_while_closing(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        frame: &Frame<'_>,
    ) -> Result<(), Failure> {
        let Frame::Method { payload, .. } = frame else { return Ok(()) };
        let ids = Method::peek_ids(payload);
        if ids == Some(CLOSE_OK) {
            self.state = State::Gone;
        } else if ids == Some(CLOSE) {
            // Both closed at once: the other's answer is still to come.
            let answer = Method::ChannelCloseOk(channel::CloseOk);
            trunk.send(turn, self.at.number, &answer);
        }
        Ok(())
    }

    fn method(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        method: &Method<'_>,
    ) -> Result<(), Failure> {
        match method {
            Method::BasicAck(ack) => {
                self.settle(trunk, ack.delivery_tag, ack.multiple, Outcome::Done)
            }
            Method::BasicNack(nack) => {
                let outcome = refused_outcome(nack.requeue);
                self.settle(trunk, nack.delivery_tag, nack.multiple, outcome)
            }
            Method::BasicReject(reject) => {
                let outcome = refused_outcome(reject.requeue);
                self.settle(trunk, reject.delivery_tag, false, outcome)
            }
            Method::BasicGet(get) => self.get(trunk, turn, get),
            Method::BasicQos(qos) => self.qos(trunk, turn, qos),
            Method::BasicConsume(consume) => self.consume(trunk, turn, consume),
            Method::BasicCancel(cancel) => self.cancel(trunk, turn, cancel),
            Method::BasicRecover(recover) => {
                self.recover(trunk, recover.requeue)?;
                let answer = Method::BasicRecoverOk(basic::RecoverOk);
                trunk.send(turn, self.at.number, &answer);
                Ok(())
            }
            Method::BasicRecoverAsync(recover) => self.recover(trunk, recover.requeue),
            Method::QueueDeclare(declare) => self.declare_queue(trunk, turn, declare),
            Method::QueueBind(bind) => self.bind_queue(trunk, turn, bind),
            Method::QueueUnbind(unbind) => self.unbind_queue(trunk, turn, unbind),
            Method::QueuePurge(purge) => self.purge_queue(trunk, turn, purge),
            Method::QueueDelete(delete) => self.delete_queue(trunk, turn, delete),
            Method::ExchangeDeclare(declare) => self.declare_exchange(trunk, turn, declare),
            Method::ExchangeDelete(delete) => self.delete_exchange(trunk, turn, delete),
            Method::ExchangeBind(bind) => self.bind_exchange(trunk, turn, bind),
            Method::ExchangeUnbind(unbind) => self.unbind_exchange(trunk, turn, unbind),
            Method::ConfirmSelect(select) => self.confirm_select(trunk, turn, select),
            Method::TxSelect(_) => self.tx_select(trunk, turn),
            Method::TxCommit(_) => self.tx_commit(trunk, turn),
            Method::TxRollback(_) => self.tx_rollback(trunk, turn),
            Method::ChannelFlow(flow) => {
                if !flow.active {
                    return Err(Failure::connection(ReplyCode::NotImplemented, "active=false"));
                }
                let answer = Method::ChannelFlowOk(channel::FlowOk { active: true });
                trunk.send(turn, self.at.number, &answer);
                Ok(())
            }
            Method::ChannelClose(_) => {
                self.leave(trunk, turn);
                Ok(())
            }
            Method::ChannelOpen(_) => {
                let text = "second 'channel.open' seen";
                Err(Failure::connection(ReplyCode::ChannelError, text))
            }
            other => Err(unexpected(other.name())),
        }
    }

    fn confirm_select(
        &mut self,
        trunk: &Trunk,
        turn: &mut Turn<'_>,
        select: &confirm::Select,
    ) -> Result<(), Failure> {
        match self.mode {
            Mode::Plain => self.mode = Mode::Confirm(Confirms::default()),
            Mode::Confirm(_) => {}
            Mode::Tx(_) => {
                let text = "cannot switch from tx to confirm mode";
                return Err(Failure::channel(ReplyCode::PreconditionFailed, text));
            }
        }
        if !select.no_wait {
            let answer = Method::ConfirmSelectOk(confirm::SelectOk);
            trunk.send(turn, self.at.number, &answer);
        }
        Ok(())
    }

    /// What the channel waited for has come.
    pub(crate) fn answered(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        answer: Answer,
    ) -> Result<(), Failure> {
        if self.state != State::Open {
            return Ok(());
        }
        let done = self.go_on(trunk, turn, answer);
        self.done_so_far(trunk, turn, done)
    }

    /// A queue takes a message of the transaction that is being committed, or does not.
    pub(crate) fn admitted(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        group: GroupId,
        message: Option<&Guarded>,
    ) -> Result<(), Failure> {
        if self.state != State::Open || !self.take_admitted(group, message) {
            return Ok(());
        }
        let Some(Doing::Admit { tx, is_partial, .. }) = self.doing.take() else { return Ok(()) };
        let done = self.commit(trunk, turn, *tx, is_partial);
        self.done_so_far(trunk, turn, done)
    }

    /// Refuses what failed; with nothing more to wait for, the frames that were set aside are next.
    fn done_so_far(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        done: Result<(), Failure>,
    ) -> Result<(), Failure> {
        let ids = self.doing_ids;
        let result = done.or_else(|failure| {
            self.doing = None;
            self.refused(trunk, turn, failure, ids)
        });
        if self.doing.is_none() && !self.deferred.is_empty() {
            trunk.resumable.push(self.at);
        }
        result
    }

    fn go_on(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        answer: Answer,
    ) -> Result<(), Failure> {
        let Some(doing) = self.doing.take() else { return Ok(()) };
        match (doing, answer) {
            (Doing::Commit { unanswered, failed, is_partial }, answer) => {
                let failed = failed || !matches!(answer, Answer::Appended { .. });
                let unanswered = unanswered - 1;
                if unanswered > 0 {
                    self.doing = Some(Doing::Commit { unanswered, failed, is_partial });
                } else if failed {
                    return Err(not_done("the transaction"));
                } else {
                    return self.committed(trunk, turn, is_partial);
                }
                Ok(())
            }
            (Doing::Leave { unanswered }, _) => {
                match unanswered {
                    0 | 1 => self.left(trunk, turn),
                    _ => self.doing = Some(Doing::Leave { unanswered: unanswered - 1 }),
                }
                Ok(())
            }
            (Doing::Get(fetch), Answer::Got { delivery, ready, .. }) => {
                self.got(trunk, turn, delivery, ready, fetch);
                Ok(())
            }
            (Doing::Attach { number, queue, no_wait }, Answer::Attached { result, .. }) => {
                self.attached(trunk, turn, number, &queue, no_wait, result)
            }
            (Doing::Detach { number, tag, no_wait }, _) => {
                self.detached(trunk, turn, number, &tag, no_wait);
                Ok(())
            }
            (Doing::Replay { replay, reply }, answer) => {
                self.history_fetched(trunk, turn, replay, reply, answer)
            }
            (doing, answer) => self.topology_answered(trunk, turn, doing, answer),
        }
    }

    /// Tells the client what became of its publishes. Gives whether some still wait behind others.
    pub(crate) fn tell_confirms(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        is_late: bool,
    ) -> bool {
        self.is_touched = false;
        let number = self.at.number;
        let Mode::Confirm(confirms) = &mut self.mode else { return false };
        if self.state != State::Open {
            return false;
        }
        let mut encoder = amqp::Encoder::new(&mut turn.out.bytes, trunk.frame_bytes_max);
        let before = confirms.told();
        let say = |verdict| match verdict {
            Verdict::Ack { seq, multiple } => {
                let ack = basic::Ack { delivery_tag: seq, multiple };
                encoder.method(number, &Method::BasicAck(ack));
            }
            Verdict::Nack { seq, multiple } => {
                let nack = basic::Nack { delivery_tag: seq, multiple, requeue: false };
                encoder.method(number, &Method::BasicNack(nack));
            }
        };
        match is_late {
            true => confirms.tell_held_up(say),
            false => confirms.tell(say),
        }
        trunk.counts.confirmed += confirms.told() - before;
        confirms.is_held_up()
    }

    /// Says once that a consumer without a prefetch gets nothing more until it acknowledges.
    pub(crate) fn say_if_full(&mut self, peer: SocketAddr) {
        let is_full = self.unacked.count() >= limits::UNACKED_MAX && self.prefetch_global == 0;
        if is_full && !self.has_said_full {
            self.has_said_full = true;
            tracing::warn!(
                %peer,
                channel = self.at.number,
                unacknowledged = self.unacked.count(),
                "a channel holds as many unacknowledged messages as it may: its consumers without \
                 a prefetch get no more until some are acknowledged. Let the client acknowledge, \
                 or set a prefetch (basic.qos)"
            );
        }
    }

    /// What this channel's consumers may still be given.
    pub(crate) fn room(&self) -> ChannelRoom {
        ChannelRoom {
            prefetch: self.prefetch_global,
            consumed: self.unacked.consumed(),
            unacked: self.unacked.count(),
        }
    }

    /// A refusal: of the channel, which is then closed here, or of the connection, which is the
    /// session's to close.
    fn refused(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        failure: Failure,
        ids: (u16, u16),
    ) -> Result<(), Failure> {
        match failure.scope {
            Scope::Connection => Err(Failure { ids, ..failure }),
            Scope::Channel => {
                self.fail(trunk, turn, &failure, ids);
                Ok(())
            }
        }
    }

    /// Closes the channel with an error: `channel.close`, and nothing more until it is answered.
    pub(crate) fn fail(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        failure: &Failure,
        ids: (u16, u16),
    ) {
        trunk.counts.channel_errors += 1;
        let close = channel::Close {
            reply_code: failure.error.code.number(),
            reply_text: &failure.error.reply_text(),
            class_id: ids.0,
            method_id: ids.1,
        };
        trunk.send(turn, self.at.number, &Method::ChannelClose(close));
        self.wind_up(trunk, turn, |consumer| Waiting::Forget { consumer });
        self.state = State::Closing;
    }

    /// The client closes the channel: answered when no delivery can come any more, and what it
    /// published is in its queues.
    fn leave(&mut self, trunk: &mut Trunk, turn: &mut Turn<'_>) {
        let at = self.at;
        let mut unanswered = self.consumers.len();
        self.wind_up(trunk, turn, |_| Waiting::Channel(at));
        trunk.appends.flush(&mut trunk.tickets, &mut turn.out.requests);
        if trunk.has_unlogged(Groups::All) {
            // Any question will do: it is asked once everything before it is logged.
            let group = GroupId::local(trunk.node);
            trunk.ask_after(turn, Waiting::Channel(at), Groups::All, |ticket| Request::Status {
                ticket,
                group,
                queue: QueueId(0),
            });
            unanswered += 1;
        }
        match unanswered {
            0 => self.left(trunk, turn),
            _ => self.doing = Some(Doing::Leave { unanswered }),
        }
    }

    fn left(&mut self, trunk: &mut Trunk, turn: &mut Turn<'_>) {
        let answer = Method::ChannelCloseOk(channel::CloseOk);
        trunk.send(turn, self.at.number, &answer);
        self.state = State::Gone;
    }

    fn detach(trunk: &mut Trunk, turn: &mut Turn<'_>, number: u64, waiting: Waiting) {
        let Some(consumer) = trunk.consumers.find_mut(number) else { return };
        consumer.is_over = true;
        let source = consumer.source;
        let consumer = trunk.consumer_id(number);
        trunk.ask_as(turn, waiting, |ticket| Request::Detach {
            ticket,
            group: source.group,
            queue: source.queue,
            consumer,
        });
    }

    /// Ends the channel's consumers and gives back what it holds; `waiting` says who is told of a consumer's
    /// end.
    ///
    /// None of them is to get again what is given back, so they go first. Only where one consumer is served
    /// at a time its messages go before it: or the next would begin with those behind them.
    fn wind_up(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        waiting: impl Fn(u64) -> Waiting,
    ) {
        self.drop_content(trunk);
        self.drop_replies(trunk, turn);
        self.roll_back(trunk);
        let all: Vec<u64> = std::mem::take(&mut self.consumers).into_values().collect();
        let is_last = |number: &u64| {
            let found = trunk.consumers.find(*number);
            found.is_some_and(|consumer| consumer.is_single_active && !consumer.no_ack)
        };
        let (last, first): (Vec<u64>, Vec<u64>) = all.into_iter().partition(is_last);
        for number in first {
            Self::detach(trunk, turn, number, waiting(number));
        }
        self.requeue_all(trunk, Outcome::Returned);
        for number in last {
            Self::detach(trunk, turn, number, waiting(number));
        }
        self.mode = Mode::Plain;
        self.doing = None;
        self.drop_deferred(trunk);
    }

    /// What was set aside is not done.
    pub(crate) fn drop_deferred(&mut self, trunk: &mut Trunk) {
        trunk.deferred_bytes -= self.deferred.len();
        self.deferred = BytesMut::new();
    }
}

/// What becomes of messages that a client refuses.
fn refused_outcome(requeue: bool) -> Outcome {
    if requeue { Outcome::Requeue } else { Outcome::Rejected }
}

fn heartbeat_here() -> Failure {
    Failure::connection(ReplyCode::UnexpectedFrame, "heartbeat on a channel other than 0")
}
