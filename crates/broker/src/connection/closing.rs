//! How a connection ends: the client leaves, or is told why it has to.

use amqp::{Frame, Method, ReplyCode, connection};
use bytes::BytesMut;
use cluster::Request;

use crate::connection::Turn;
use crate::connection::tickets::{Groups, Waiting};
use crate::errors::Failure;
use crate::session::{Phase, ReplyOrder, Session};

impl Session {
    /// The client closes the connection. What it sent behind that is not looked at.
    pub(crate) fn leave(&mut self, turn: &mut Turn<'_>) {
        self.end(turn);
        self.phase = Phase::Leaving { until: turn.now + self.trunk.config.close_wait };
    }

    /// Hands what was gathered to the cluster and tells it that nothing more will come.
    pub(crate) fn end(&mut self, turn: &mut Turn<'_>) {
        self.trunk.take_no_messages();
        // What it published is in its queues before anybody is told that it is gone.
        let goodbye = |ticket| Request::EndSession { ticket };
        self.trunk.ask_after(turn, Waiting::End, Groups::All, goodbye);
        for (address, _) in self.trunk.reply_addresses.drain(..) {
            turn.out.replies.push(ReplyOrder::Close(address));
        }
        self.channels.clear();
        self.trunk.consumers = Default::default();
        self.trunk.partial_bytes = 0;
        self.trunk.announced_bytes = 0;
        self.trunk.tx_bytes = 0;
        self.trunk.deferred_bytes = 0;
    }

    /// Closes the connection with an error: `connection.close`, and nothing more until it is answered.
    pub(crate) fn fail(&mut self, turn: &mut Turn<'_>, failure: &Failure) {
        self.trunk.counts.connection_errors += 1;
        let was_running = self.is_running();
        self.close(turn, failure);
        let wait = match was_running {
            true => self.trunk.config.close_wait,
            false => self.trunk.config.refusal_delay,
        };
        self.phase = Phase::Closing { until: turn.now + wait };
    }

    fn close(&mut self, turn: &mut Turn<'_>, failure: &Failure) {
        let close = connection::Close {
            reply_code: failure.error.code.number(),
            reply_text: &failure.error.reply_text(),
            class_id: failure.ids.0,
            method_id: failure.ids.1,
        };
        tracing::info!(
            peer = %self.trunk.peer,
            user = %self.trunk.user,
            reason = %failure.error,
            "closing an AMQP connection"
        );
        self.trunk.send(turn, 0, &Method::ConnectionClose(close));
        self.end(turn);
    }

    pub(crate) fn close_forced(&mut self, turn: &mut Turn<'_>, reason: &str) {
        match self.phase {
            Phase::Running | Phase::Tune | Phase::Open => {
                let failure = Failure::connection(ReplyCode::ConnectionForced, reason);
                self.close(turn, &failure);
                self.phase = Phase::Closing { until: turn.now + self.trunk.config.close_wait };
            }
            Phase::Header | Phase::Start | Phase::Verifying(_) => self.over(turn),
            Phase::Leaving { .. } | Phase::Closing { .. } | Phase::Silent { .. } | Phase::Over => {}
        }
    }

    pub(crate) fn frame_while_closing(&mut self, turn: &mut Turn<'_>, frame: &Frame<'_>) {
        let Frame::Method { channel: 0, payload } = frame else { return };
        match Method::decode(payload) {
            Ok(Method::ConnectionCloseOk(_)) => self.over(turn),
            Ok(Method::ConnectionClose(_)) => {
                let answer = Method::ConnectionCloseOk(connection::CloseOk);
                self.trunk.send(turn, 0, &answer);
            }
            Ok(_) | Err(_) => {}
        }
    }

    pub(crate) fn over(&mut self, turn: &mut Turn<'_>) {
        self.phase = Phase::Over;
        self.received = BytesMut::new();
        turn.out.close = true;
    }
}
