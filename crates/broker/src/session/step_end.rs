//! What ends every step, and what only time brings: batches are handed over, confirms told, credit given,
//! heartbeats sent.

use std::time::Duration;

use amqp::ReplyCode;
use cluster::{Request, Ticket};
use machine::{ConsumerId, ConsumerSpec, Queue};

use super::{Phase, Session, find};
use crate::channel::unacked::Source;
use crate::channel::{Channel, State};
use crate::connection::ConnectionState;
use crate::connection::client::Client;
use crate::connection::consumers::Consumer;
use crate::connection::login::Notice;
use crate::connection::step::Step;
use crate::connection::tickets::Waiting;
use crate::errors::Failure;
use crate::limits;

impl Session {
    /// Hands over what the step gathered.
    pub(super) fn finish(&mut self, step: &mut Step<'_>) {
        self.resume(step);
        self.tell_confirms(step, false);
        self.connection.requests.flush_publishes(&mut step.out.requests);
        self.tell_elected(step);
        self.tell_capacities(step);
        self.grant(step);
        self.connection.requests.flush_settles(&mut step.out.requests);
        self.look_at_catalog(step);
        self.connection.ack_timeout.plan(step.now);
    }

    /// Takes up frames that were set aside while their channel waited.
    fn resume(&mut self, step: &mut Step<'_>) {
        while let Some(at) = self.connection.resumable.pop() {
            let Some(channel) = find(&mut self.channels, at) else { continue };
            let Some(deferred) = channel.take_deferred(&mut self.connection) else { continue };
            let mut taken = 0;
            while self.is_running()
                && let Ok(Some((frame, used))) = self.decoder.decode(&deferred[taken..])
            {
                let raw = &deferred[taken..taken + used];
                taken += used;
                let Some(channel) = find(&mut self.channels, at) else { break };
                let rest = &deferred[taken..];
                let connection = &mut self.connection;
                let result = channel.frame(connection, step, &self.decoder, &frame, raw, rest);
                if channel.state == State::Gone {
                    self.forget(at.number);
                }
                match result {
                    Ok(used) => taken += used,
                    Err(failure) => self.fail(step, &failure),
                }
            }
        }
    }

    fn tell_confirms(&mut self, step: &mut Step<'_>, is_late: bool) {
        let mut are_held_up = false;
        for number in std::mem::take(&mut self.connection.publishers.touched) {
            if let Some(channel) = self.channels.get_mut(&number) {
                are_held_up |= channel.tell_confirms(&mut self.connection, step, is_late);
            }
        }
        if are_held_up && self.late_confirms_at.is_none() {
            self.late_confirms_at = Some(step.now + limits::CONFIRM_TIMEOUT);
        }
    }

    /// Gives credit to consumers whose messages the socket takes.
    fn grant(&mut self, step: &mut Step<'_>) {
        let ConnectionState { client, requests, consumers, outbound, .. } = &mut self.connection;
        if !consumers.wants_credit() || !outbound.may_grant(step.out.bytes.len()) {
            return;
        }
        let (session, peer) = (client.session, client.peer);
        let (settles, out) = (&mut requests.settles, &mut step.out.requests);
        let channels = &mut self.channels;
        let room = |at| Some(find(channels, at)?.room(peer));
        consumers.grant(room, |source, credit| {
            if !settles.add_credit(source, credit) {
                out.push(Request::Credit {
                    group: source.group,
                    queue: source.queue,
                    consumer: ConsumerId { session, number: source.consumer },
                    add: credit,
                });
            }
        });
    }

    /// The connections of a deleted vhost and those of a deleted user are closed.
    fn look_at_catalog(&mut self, step: &mut Step<'_>) {
        let version = step.catalog().version();
        if !self.is_running() || self.catalog_seen == version {
            return;
        }
        self.catalog_seen = version;
        let vhost = &self.connection.client.vhost;
        if step.catalog().vhost(vhost).is_none() {
            let reason = format!("vhost '{vhost}' is deleted");
            return self.close_forced(step, &reason);
        }
        let client = &self.connection.client;
        if client.rights.is_deleted(step.catalog(), &client.user) {
            let reason = format!("user '{}' is deleted", client.user);
            return self.close_forced(step, &reason);
        }
        self.look_at_partitions(step);
    }

    /// Who consumes from a queue gets the partitions that the queue has got meanwhile, too.
    fn look_at_partitions(&mut self, step: &mut Step<'_>) {
        let catalog = step.catalog();
        if catalog.partitions().is_empty() {
            return;
        }
        let ConnectionState { client, requests, consumers, .. } = &mut self.connection;
        let count = |queue| catalog.queue_by_id(queue).map_or(0, Queue::partition_count);
        for lead in consumers.outgrown(count) {
            let queue = consumers.find(lead).and_then(|it| catalog.queue_by_id(it.source.queue));
            let Some(queue) = queue else { continue };
            let partitions: Vec<_> = queue.partitions().zip(0..).collect();
            for number in consumers.grow(lead, &partitions) {
                let Some(consumer) = consumers.find(number) else { continue };
                let waiting = Waiting::Partition { consumer: number };
                requests.ask(&mut step.out.requests, waiting, attach(client, consumer));
            }
        }
    }

    /// Tells partitions what consumers here can do.
    fn tell_capacities(&mut self, step: &mut Step<'_>) {
        let ConnectionState { client, consumers, .. } = &mut self.connection;
        consumers.look_at_capacities(step.now, |source, change| {
            step.out.requests.push(Request::ChangeConsumer {
                group: source.group,
                queue: source.queue,
                consumer: client.consumer_id(source.consumer),
                change,
            });
        });
    }

    /// Tells partitions which of the consumers here are elected.
    fn tell_elected(&mut self, step: &mut Step<'_>) {
        let ConnectionState { client, requests, consumers, .. } = &mut self.connection;
        for number in consumers.take_untold() {
            let Some(consumer) = consumers.find(number) else { continue };
            let generation = consumer.spec.generation;
            let waiting = Waiting::Elected { consumer: number, generation };
            requests.ask(&mut step.out.requests, waiting, attach(client, consumer));
        }
    }

    /// A login ends with its token: from that moment on nothing of what the client says is done.
    pub(super) fn look_at_token(&mut self, step: &mut Step<'_>) {
        let client = &self.connection.client;
        let has_expired = client.expires_at.is_some_and(|at| step.now >= at);
        if has_expired && matches!(self.phase, Phase::Tune | Phase::Open | Phase::Running) {
            let reason = format!(
                "the token of user '{}' has expired; renew it in time with connection.update-secret, or log in with a \
                 new one",
                client.user
            );
            self.close_forced(step, &reason);
        }
    }

    pub(super) fn time_passed(&mut self, step: &mut Step<'_>) {
        let now = step.now;
        match self.phase {
            Phase::Leaving { until } | Phase::Closing { until } | Phase::Silent { until } => {
                if now >= until {
                    self.over(step);
                }
            }
            Phase::Header | Phase::Start | Phase::Verifying(_) | Phase::Tune | Phase::Open => {
                if now >= self.handshake_until {
                    self.connection.counts.handshake_late += 1;
                    if let Phase::Verifying(login) = &self.phase {
                        step.out.notice = Some(Notice::Unjudged { user: login.user().to_owned() });
                    }
                    self.over(step);
                }
            }
            Phase::Running => self.time_passed_running(step),
            Phase::Over => {}
        }
    }

    fn time_passed_running(&mut self, step: &mut Step<'_>) {
        let now = step.now;
        self.connection.consumers.tell_again(now);
        if self.late_confirms_at.is_some_and(|at| now >= at) {
            self.late_confirms_at = None;
            self.connection.publishers.touched = self.channels.keys().copied().collect();
            self.tell_confirms(step, true);
        }
        if self.connection.ack_timeout.look_at.is_some_and(|at| now >= at) {
            self.look_at_unacked(step);
        }
        let client = &self.connection.client;
        if self.heartbeat.dead_at().is_some_and(|at| now >= at) {
            tracing::info!(
                peer = %client.peer,
                "closing an AMQP connection: the client sent no heartbeat in time"
            );
            self.end(step);
            self.over(step);
        } else if self.heartbeat.next().is_some_and(|at| now >= at) {
            client.encoder(step).heartbeat();
        }
    }

    /// Closes the channels that hold a message for too long.
    fn look_at_unacked(&mut self, step: &mut Step<'_>) {
        let connection = &mut self.connection;
        connection.ack_timeout.begin_look();
        let now = step.now.saturating_duration_since(connection.client.since.at);
        for channel in self.channels.values_mut() {
            let config = &connection.client.config;
            match channel.look_at_unacked(now, config, step.catalog()) {
                Some(Some(exceeded)) => time_out(channel, connection, step, exceeded),
                Some(None) => connection.ack_timeout.holds_unacked = true,
                None => {}
            }
        }
    }
}

/// Asks a partition to serve a consumer, which gets its credit later.
fn attach(client: &Client, consumer: &Consumer) -> impl FnOnce(Ticket) -> Request + use<> {
    let Source { group, queue, consumer: number } = consumer.source;
    let (spec, consumer) =
        (ConsumerSpec { credit: 0, ..consumer.spec }, client.consumer_id(number));
    move |ticket| Request::Attach { ticket, group, queue, consumer, spec }
}

/// A channel holds a message for longer than it may.
fn time_out(
    channel: &mut Channel,
    connection: &mut ConnectionState,
    step: &mut Step<'_>,
    timeout: Duration,
) {
    let (number, ms) = (channel.at.number, timeout.as_millis());
    tracing::warn!(
        peer = %connection.client.peer,
        user = %connection.client.user,
        channel = number,
        timeout_ms = %ms,
        "closing a channel: the client did not acknowledge a delivery in time. Let the client acknowledge sooner, \
         or set a longer consumer_timeout_s or x-consumer-timeout"
    );
    connection.counts.consumer_timeouts += 1;
    let text = format!(
        "delivery acknowledgement on channel {number} timed out. Timeout value used: {ms} ms. \
         This timeout value can be configured, see consumers doc guide to learn more"
    );
    let failure = Failure::channel(ReplyCode::PreconditionFailed, text);
    channel.fail(connection, step, &failure, failure.ids);
}
