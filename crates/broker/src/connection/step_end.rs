//! What ends every step, and what only time brings: batches are handed over, confirms told, credit given,
//! heartbeats sent.

use std::time::Instant;

use amqp::ReplyCode;
use cluster::Request;

use crate::channel::State;
use crate::connection::Turn;
use crate::errors::Failure;
use crate::limits;
use crate::session::{Notice, Phase, Session, find};

impl Session {
    /// Hands over what the step gathered.
    pub(crate) fn finish(&mut self, turn: &mut Turn<'_>) {
        self.resume(turn);
        self.tell_confirms(turn, false);
        let trunk = &mut self.trunk;
        trunk.appends.flush(&mut trunk.tickets, &mut turn.out.requests);
        trunk.guards.flush(&mut trunk.tickets, &mut turn.out.requests);
        trunk.release(turn);
        self.grant(turn);
        self.trunk.settles.flush(self.trunk.session, &mut turn.out.requests);
        self.look_at_vhost(turn);
        self.plan_look(turn.now);
    }

    /// Takes up frames that were set aside while their channel waited.
    fn resume(&mut self, turn: &mut Turn<'_>) {
        while let Some(at) = self.trunk.resumable.pop() {
            let Some(channel) = find(&mut self.channels, at) else { continue };
            let Some(deferred) = channel.take_deferred(&mut self.trunk) else { continue };
            let mut taken = 0;
            while self.is_running()
                && let Ok(Some((frame, used))) = self.decoder.decode(&deferred[taken..])
            {
                let raw = &deferred[taken..taken + used];
                taken += used;
                let Some(channel) = find(&mut self.channels, at) else { break };
                let rest = &deferred[taken..];
                let result = channel.frame(&mut self.trunk, turn, &self.decoder, &frame, raw, rest);
                if channel.state == State::Gone {
                    self.forget(at.number);
                }
                match result {
                    Ok(used) => taken += used,
                    Err(failure) => self.fail(turn, &failure),
                }
            }
        }
    }

    pub(crate) fn tell_confirms(&mut self, turn: &mut Turn<'_>, is_late: bool) {
        let mut are_held_up = false;
        for number in std::mem::take(&mut self.trunk.touched) {
            if let Some(channel) = self.channels.get_mut(&number) {
                are_held_up |= channel.tell_confirms(&mut self.trunk, turn, is_late);
            }
        }
        if are_held_up && self.late_confirms_at.is_none() {
            self.late_confirms_at = Some(turn.now + limits::CONFIRM_PATIENCE);
        }
    }

    /// Gives credit to consumers whose messages the socket takes.
    fn grant(&mut self, turn: &mut Turn<'_>) {
        if !self.trunk.consumers.wants_credit() || turn.out.bytes.len() > limits::OUTBOUND_BYTES_LOW
        {
            return;
        }
        let session = self.trunk.session;
        let (settles, requests) = (&mut self.trunk.settles, &mut turn.out.requests);
        let channels = &mut self.channels;
        let peer = self.trunk.peer;
        let room = |at| {
            let channel = find(channels, at)?;
            channel.say_if_full(peer);
            Some(channel.room())
        };
        self.trunk.consumers.grant(room, |source, credit| {
            if !settles.add_credit(source, credit) {
                requests.push(Request::Credit {
                    group: source.group,
                    queue: source.queue,
                    consumer: machine::ConsumerId { session, number: source.consumer },
                    add: credit,
                });
            }
        });
    }

    /// The connections of a deleted vhost are closed.
    fn look_at_vhost(&mut self, turn: &mut Turn<'_>) {
        let version = turn.view.catalog.version();
        if !self.is_running() || self.catalog_seen == version {
            return;
        }
        self.catalog_seen = version;
        if turn.view.catalog.vhost(&self.trunk.vhost).is_none() {
            let reason = format!("vhost '{}' is deleted", self.trunk.vhost);
            self.close_forced(turn, &reason);
        }
    }

    pub(crate) fn time_passed(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now;
        match self.phase {
            Phase::Leaving { until } | Phase::Closing { until } | Phase::Silent { until } => {
                if now >= until {
                    self.over(turn);
                }
            }
            Phase::Header | Phase::Start | Phase::Verifying(_) | Phase::Tune | Phase::Open => {
                if now >= self.handshake_until {
                    self.trunk.counts.handshake_late += 1;
                    if let Phase::Verifying(login) = &self.phase {
                        turn.out.notice = Some(Notice::Unjudged { user: login.user().to_owned() });
                    }
                    self.over(turn);
                }
            }
            Phase::Running => {
                if self.late_confirms_at.is_some_and(|at| now >= at) {
                    self.late_confirms_at = None;
                    self.tell_late_confirms(turn);
                }
                if self.look_at.is_some_and(|at| now >= at) {
                    self.look_at_unacked(turn);
                }
                if self.dead_at().is_some_and(|at| now >= at) {
                    tracing::info!(peer = %self.trunk.peer, "no heartbeat from an AMQP client");
                    self.end(turn);
                    self.over(turn);
                } else if self.next_heartbeat().is_some_and(|at| now >= at) {
                    self.trunk.encoder(turn).heartbeat();
                }
            }
            Phase::Over => {}
        }
    }

    fn tell_late_confirms(&mut self, turn: &mut Turn<'_>) {
        self.trunk.touched = self.channels.keys().copied().collect();
        self.tell_confirms(turn, true);
    }

    /// When a heartbeat is due: half the interval after the last bytes.
    pub(crate) fn next_heartbeat(&self) -> Option<Instant> {
        (!self.heartbeat.is_zero()).then(|| self.sent_at + self.heartbeat / 2)
    }

    /// When the client counts as dead: two intervals after its last bytes, if it is being read.
    pub(crate) fn dead_at(&self) -> Option<Instant> {
        (self.is_read && !self.heartbeat.is_zero()).then(|| self.received_at + self.heartbeat * 2)
    }
}

/// The refusal of a number that a client negotiated too low or too high.
pub(crate) fn negotiated(name: &str, got: u32, bound: u32, is_low: bool) -> Failure {
    let text = match is_low {
        true => {
            format!("negotiated {name} = {got} is lower than the minimum allowed value ({bound})")
        }
        false => {
            format!("negotiated {name} = {got} is higher than the maximum allowed value ({bound})")
        }
    };
    Failure::connection(ReplyCode::NotAllowed, text)
}
