//! How a connection ends: the client leaves, or is told why it has to.

use amqp::{Frame, Method, ReplyCode, connection};
use bytes::BytesMut;
use cluster::Request;

use super::boundary::ReplyOrder;
use super::{Phase, Session};
use crate::connection::step::Step;
use crate::connection::tickets::{Groups, Waiting};
use crate::errors::Failure;

impl Session {
    /// The client closes the connection. What it sent behind that is not looked at.
    pub(super) fn leave(&mut self, step: &mut Step<'_>) {
        self.end(step);
        self.phase = Phase::Leaving { until: step.now + self.connection.client.config.close_wait };
    }

    /// Hands what was gathered to the cluster and tells it that nothing more will come.
    pub(super) fn end(&mut self, step: &mut Step<'_>) {
        let (requests, out) = (&mut self.connection.requests, &mut step.out.requests);
        requests.take_no_messages();
        // What it published is in its queues before anybody is told that it is gone.
        let goodbye = |ticket| Request::EndSession { ticket };
        requests.ask_after(out, Waiting::End, Groups::All, goodbye);
        for (address, _) in self.connection.reply_addresses.drain(..) {
            step.out.replies.push(ReplyOrder::Close(address));
        }
        self.end_channels();
        if let Some(spans) = &mut self.connection.spans {
            spans.end(step.now, &mut step.out.spans);
        }
        self.connection.consumers = Default::default();
        self.connection.publishers.unfinished = Default::default();
    }

    /// The channels that are open end with the connection.
    pub(super) fn end_channels(&mut self) {
        self.connection.counts.channels_closed += self.channels.len() as u64;
        self.connection.publishers.count = 0;
        self.channels.clear();
    }

    /// Closes the connection with an error: `connection.close`, and nothing more until it is answered.
    pub(super) fn fail(&mut self, step: &mut Step<'_>, failure: &Failure) {
        self.connection.counts.connection_errors += 1;
        let was_running = self.is_running();
        self.close(step, failure);
        let config = &self.connection.client.config;
        let wait = match was_running {
            true => config.close_wait,
            false => config.refusal_delay,
        };
        self.phase = Phase::Closing { until: step.now + wait };
    }

    fn close(&mut self, step: &mut Step<'_>, failure: &Failure) {
        let close = connection::Close {
            reply_code: failure.error.code.number(),
            reply_text: &failure.error.reply_text(),
            class_id: failure.ids.0,
            method_id: failure.ids.1,
        };
        let client = &self.connection.client;
        tracing::info!(
            peer = %client.peer,
            user = %client.user,
            reason = %failure.error,
            "closing an AMQP connection"
        );
        client.send(step, 0, &Method::ConnectionClose(close));
        self.end(step);
    }

    pub(super) fn close_forced(&mut self, step: &mut Step<'_>, reason: &str) {
        match self.phase {
            Phase::Running | Phase::Tune | Phase::Open => {
                let failure = Failure::connection(ReplyCode::ConnectionForced, reason);
                self.close(step, &failure);
                let until = step.now + self.connection.client.config.close_wait;
                self.phase = Phase::Closing { until };
            }
            Phase::Header | Phase::Start | Phase::Verifying(_) => self.over(step),
            Phase::Leaving { .. } | Phase::Closing { .. } | Phase::Silent { .. } | Phase::Over => {}
        }
    }

    pub(super) fn frame_while_closing(&mut self, step: &mut Step<'_>, frame: &Frame<'_>) {
        let Frame::Method { channel: 0, payload } = frame else { return };
        match Method::decode(payload) {
            Ok(Method::ConnectionCloseOk(_)) => self.over(step),
            Ok(Method::ConnectionClose(_)) => {
                let answer = Method::ConnectionCloseOk(connection::CloseOk);
                self.connection.client.send(step, 0, &answer);
            }
            Ok(_) | Err(_) => {}
        }
    }

    pub(super) fn over(&mut self, step: &mut Step<'_>) {
        self.phase = Phase::Over;
        self.received = BytesMut::new();
        step.out.close = true;
    }
}
