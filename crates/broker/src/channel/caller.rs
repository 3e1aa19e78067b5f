//! On whose behalf a channel's part does something: it tells this client and asks the cluster in the name of this channel.

use amqp::{Encoder, Method};
use cluster::{Request, Ticket};
use machine::{Catalog, GroupId, Outcome, QueueId, QueueType};

use super::unacked::Run;
use crate::auth::Verb;
use crate::connection::ack_timeout::AckTimeout;
use crate::connection::client::Client;
use crate::connection::consumers::Consumers;
use crate::connection::names::Names;
use crate::connection::requests::Requests;
use crate::connection::step::Step;
use crate::connection::tickets::{ChannelRef, Groups, Waiting};
use crate::connection::{ConnectionState, Publishers, ReplyAddresses};
use crate::errors::Failure;
use crate::metrics::Counts;
use crate::spans::Spans;

/// A channel of a client in one step: what every part of the channel may use.
pub(crate) struct Caller<'c, 's> {
    pub(crate) at: ChannelRef,
    pub(crate) client: &'c Client,
    pub(crate) requests: &'c mut Requests,
    pub(crate) counts: &'c mut Counts,
    /// `None`: nobody collects spans.
    pub(crate) spans: &'c mut Option<Box<Spans>>,
    pub(crate) step: &'c mut Step<'s>,
}

/// What is left of a connection beside a caller: the parts that are handed out one by one.
pub(crate) struct Parts<'c> {
    pub(crate) consumers: &'c mut Consumers,
    pub(crate) publishers: &'c mut Publishers,
    pub(crate) names: &'c mut Names,
    pub(crate) ack_timeout: &'c mut AckTimeout,
    pub(crate) reply_addresses: &'c mut ReplyAddresses,
}

/// A channel's caller, and the other parts of its connection.
#[inline]
pub(crate) fn split<'c, 's>(
    connection: &'c mut ConnectionState,
    at: ChannelRef,
    step: &'c mut Step<'s>,
) -> (Caller<'c, 's>, Parts<'c>) {
    let ConnectionState {
        client,
        requests,
        consumers,
        publishers,
        names,
        ack_timeout,
        reply_addresses,
        counts,
        traffic: _,
        spans,
        resumable: _,
        outbound: _,
    } = connection;
    let caller = Caller { at, client, requests, counts, spans, step };
    (caller, Parts { consumers, publishers, names, ack_timeout, reply_addresses })
}

impl<'s> Caller<'_, 's> {
    /// This node's applied copy of the catalog.
    pub(crate) fn catalog(&self) -> &'s Catalog {
        self.step.catalog()
    }

    /// Refuses what the client has no right to.
    pub(crate) fn allow(&self, verb: Verb<'_>) -> Result<(), Failure> {
        self.client.allow(self.catalog(), verb)
    }

    pub(crate) fn encoder(&mut self) -> Encoder<'_> {
        self.client.encoder(self.step)
    }

    pub(crate) fn send(&mut self, method: &Method<'_>) {
        self.client.send(self.step, self.at.number, method);
    }

    /// Sends an answer, if the client wanted one.
    pub(crate) fn answer(&mut self, no_wait: bool, method: &Method<'_>) {
        if !no_wait {
            self.send(method);
        }
    }

    /// Asks the cluster. Acks gathered before go first.
    pub(crate) fn ask(&mut self, question: impl FnOnce(Ticket) -> Request) {
        self.ask_as(Waiting::Channel(self.at), question);
    }

    /// Asks the cluster in the name of whoever waits.
    pub(crate) fn ask_as(&mut self, waiting: Waiting, question: impl FnOnce(Ticket) -> Request) {
        self.requests.ask(&mut self.step.out.requests, waiting, question);
    }

    /// Asks `group` once everything published to it so far is logged: the answer has to know of it.
    pub(crate) fn ask_after_appends(
        &mut self,
        group: GroupId,
        question: impl FnOnce(Ticket) -> Request,
    ) {
        let (waiting, groups) = (Waiting::Channel(self.at), Groups::One(group));
        self.requests.ask_after(&mut self.step.out.requests, waiting, groups, question);
    }

    /// The client, or the end of its channel, settled these messages.
    #[inline]
    pub(crate) fn settle(&mut self, consumers: &mut Consumers, run: &Run, outcome: Outcome) {
        self.requests.settles.add(run, outcome);
        consumers.settled(run.source.consumer, run.count, outcome);
        self.tell_settled(run, outcome);
    }

    /// Ends the spans of deliveries that are settled, if there are some.
    #[inline]
    pub(crate) fn tell_settled(&mut self, run: &Run, outcome: Outcome) {
        if let Some(spans) = self.spans {
            spans.settled(self.step.now, self.at, run, outcome, &mut self.step.out.spans);
        }
    }

    /// Whether a stream gave these messages: also to a consumer that is gone.
    pub(crate) fn is_of_stream(&self, run: &Run) -> bool {
        let queue = self.catalog().queue_by_id(run.source.queue.base());
        queue.is_some_and(|queue| queue.queue_type() == QueueType::Stream)
    }

    /// Has the channel answered once everything published so far is logged, whatever the answer says.
    pub(crate) fn wait_for_appends(&mut self) {
        // Any question will do.
        let group = GroupId::local(self.client.node);
        let (waiting, groups) = (Waiting::Channel(self.at), Groups::All);
        self.requests.ask_after(&mut self.step.out.requests, waiting, groups, |ticket| {
            Request::Status { ticket, group, queue: QueueId(0) }
        });
    }
}
