//! Direct reply-to: answers that reach a requester without a queue.
//!
//! A channel that consumes `amq.rabbitmq.reply-to` gets an address that only those know to whom it sends
//! requests: 128 bits of chance. Replies go from session to session on this node and are not stored.

use amqp::{Method, ReplyCode, basic, encode_deliver};

use crate::channel::Channel;
use crate::connection::{Trunk, Turn};
use crate::errors::Failure;
use crate::session::{Reply, ReplyOrder};

/// What a requester consumes, and puts into `reply_to`.
pub(crate) const REPLY_TO: &str = "amq.rabbitmq.reply-to";
/// What an address begins with.
pub(crate) const REPLY_TO_PREFIX: &str = "amq.rabbitmq.reply-to.";

/// The reply consumer of a channel.
#[derive(Debug)]
pub(crate) struct ReplyConsumer {
    pub(crate) address: String,
    /// The consumer tag as on the wire.
    pub(crate) tag_wire: Vec<u8>,
}

impl ReplyConsumer {
    pub(crate) fn tag(&self) -> &str {
        std::str::from_utf8(self.tag_wire.get(1..).unwrap_or_default()).unwrap_or_default()
    }
}

impl Channel {
    pub(crate) fn consume_replies(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        consume: &basic::Consume<'_>,
        tag: &str,
    ) -> Result<(), Failure> {
        if self.replies.is_some() {
            let text = "reply consumer already set";
            return Err(Failure::channel(ReplyCode::PreconditionFailed, text));
        }
        if !consume.no_ack {
            let text = "reply consumer cannot acknowledge";
            return Err(Failure::channel(ReplyCode::PreconditionFailed, text));
        }
        let address = trunk.names.draw(REPLY_TO_PREFIX);
        turn.out.replies.push(ReplyOrder::Open(address.clone()));
        trunk.reply_addresses.push((address.clone(), self.at));
        let mut tag_wire = vec![u8::try_from(tag.len()).expect("a tag is a short string")];
        tag_wire.extend_from_slice(tag.as_bytes());
        self.replies = Some(Box::new(ReplyConsumer { address, tag_wire }));
        if !consume.no_wait {
            let answer = basic::ConsumeOk { consumer_tag: tag };
            trunk.send(turn, self.at.number, &Method::BasicConsumeOk(answer));
        }
        Ok(())
    }

    /// The address that requests of this channel carry.
    pub(crate) fn reply_address(&self) -> Result<&str, Failure> {
        match &self.replies {
            Some(replies) => Ok(&replies.address),
            None => {
                let text = "fast reply consumer does not exist";
                Err(Failure::channel(ReplyCode::PreconditionFailed, text))
            }
        }
    }

    /// The reply consumer is cancelled, or its channel is at its end.
    pub(crate) fn drop_replies(&mut self, trunk: &mut Trunk, turn: &mut Turn<'_>) {
        if let Some(replies) = self.replies.take() {
            trunk.reply_addresses.retain(|(address, _)| *address != replies.address);
            turn.out.replies.push(ReplyOrder::Close(replies.address));
        }
    }

    /// A reply has come.
    pub(crate) fn deliver_reply(&mut self, trunk: &mut Trunk, turn: &mut Turn<'_>, reply: &Reply) {
        let Some(replies) = &self.replies else { return };
        let mut destination = vec![0, u8::try_from(reply.address.len()).unwrap_or(0)];
        destination.extend_from_slice(reply.address.as_bytes());
        encode_deliver(
            &mut turn.out.bytes,
            trunk.frame_bytes_max,
            self.at.number,
            &replies.tag_wire,
            self.unacked.pass(1),
            false,
            &destination,
            &reply.properties,
            &reply.body,
        );
        trunk.counts.delivered += 1;
    }
}
