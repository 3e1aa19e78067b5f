//! What goes into a session and what comes out of it: what its shell has to know.

use bytes::{Bytes, BytesMut};
use cluster::{Alarms, Answer, Request};
use machine::{Catalog, Event};

use crate::connection::consumers::ConsumerPause;
use crate::connection::login::{Judge, Judged, Notice, Verify};
use crate::own::Own;
use crate::population::Quotas;

/// What a step may look at.
pub struct View<'a> {
    /// This node's applied copy.
    pub catalog: &'a Catalog,
    /// Why publishers have to wait, if they do.
    pub alarms: Alarms,
    /// Of all sessions of the node: see `Session::in_flight_bytes`.
    pub in_flight_bytes: u64,
    /// Of all sessions of the node: see `Session::outbound_bytes`.
    pub outbound_bytes: u64,
    /// Consumers of all sessions of the node: see `Session::consumer_count`.
    pub consumers: u64,
    /// Which reply addresses somebody listens at.
    pub replies: &'a dyn ReplyAddresses,
    /// How many connections and channels users and vhosts have.
    pub quotas: &'a dyn Quotas,
}

/// Which reply addresses somebody listens at: the node's registry, or a test's list.
pub trait ReplyAddresses {
    /// Whether a reply to `address` would reach somebody now.
    fn is_open(&self, address: &str) -> bool;
}

/// What happens to a session.
#[derive(Debug)]
pub enum Input<'a> {
    /// More bytes are in `Session::buffer`.
    Received,
    /// The cluster has answered. What is taken is drained.
    Answered(&'a mut Vec<Answer>),
    /// Replies came for this session's reply consumers. What is taken is drained.
    Replied(&'a mut Vec<Reply>),
    /// The moment that `deadline` named has come.
    DeadlinePassed,
    /// The bytes that waited are with the socket.
    Written,
    /// The answer to `Outputs::verify`.
    Verified(bool),
    /// The answer to `Outputs::token`.
    Judged(Judged),
    /// An operator closes the connection: 320 with this reason.
    Close(&'a str),
    /// Operators pause consumers, or let them go on. What is taken is drained.
    Pause(&'a mut Vec<PauseOrder>),
}

/// A consumer is to be paused, or to go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PauseOrder {
    pub channel: u16,
    pub tag: String,
    /// `None`: it goes on.
    pub pause: Option<ConsumerPause>,
}

/// A message for a reply address: it goes from session to session and is not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Where it goes; also its routing key.
    pub address: String,
    /// Flags and values, as on the wire.
    pub properties: Bytes,
    pub body: Bytes,
}

/// What a session wants of the node's registry of reply addresses. To be done in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplyOrder {
    /// Replies to this address are for this session.
    Open(String),
    /// Nobody listens there any more.
    Close(String),
    /// To whoever listens there.
    Send(Reply),
}

/// What a session wants done. The shell empties it.
#[derive(Debug, Default)]
pub struct Outputs {
    /// For the socket, behind what waits there already.
    pub bytes: BytesMut,
    /// For the cluster, in order.
    pub requests: Vec<Request>,
    /// For the registry of reply addresses, in order.
    pub replies: Vec<ReplyOrder>,
    /// At most one at a time; answered by `Input::Verified`.
    pub verify: Option<Verify>,
    /// At most one at a time; answered by `Input::Judged`.
    pub token: Option<Judge>,
    /// For the log, at most one a step.
    pub notice: Option<Notice>,
    /// For the exchange of events: empty unless something is bound to it.
    pub events: Vec<Event>,
    /// For the exchanges of traces: empty unless something is bound to the one of a traced vhost.
    pub(crate) traces: Vec<Own>,
    /// For the collector of OpenTelemetry: empty unless there is one.
    pub(crate) spans: Vec<otlp::Span>,
    /// Close the socket once the bytes are with it.
    pub close: bool,
}
