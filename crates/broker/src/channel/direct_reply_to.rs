//! Direct reply-to: answers that reach a requester without a queue.
//!
//! A channel that consumes `amq.rabbitmq.reply-to` gets an address that only those know to whom it sends
//! requests: 128 bits of chance. Replies go from session to session on this node and are not stored.

use amqp::{Method, ReplyCode, basic, encode_deliver};

use super::caller::Caller;
use crate::connection::ReplyAddresses;
use crate::connection::names::Names;
use crate::errors::Failure;
use crate::session::boundary::{Reply, ReplyOrder};

/// What a requester consumes, and puts into `reply_to`.
pub(crate) const REPLY_TO: &str = "amq.rabbitmq.reply-to";
/// What an address begins with.
pub(crate) const REPLY_TO_PREFIX: &str = "amq.rabbitmq.reply-to.";

/// The reply consumer of a channel, if it has one.
#[derive(Debug, Default)]
pub(crate) struct Replies(Option<Box<Consumer>>);

#[derive(Debug)]
struct Consumer {
    address: String,
    /// The consumer tag as on the wire.
    tag_wire: Vec<u8>,
}

impl Replies {
    /// Whether this is the reply consumer's tag.
    pub(crate) fn has_tag(&self, tag: &str) -> bool {
        let own = self.0.as_ref().map(|consumer| consumer.tag_wire.get(1..).unwrap_or_default());
        own == Some(tag.as_bytes())
    }

    pub(crate) fn consume(
        &mut self,
        caller: &mut Caller<'_, '_>,
        names: &mut Names,
        addresses: &mut ReplyAddresses,
        consume: &basic::Consume<'_>,
        tag: &str,
    ) -> Result<(), Failure> {
        if self.0.is_some() {
            let text = "reply consumer already set";
            return Err(Failure::channel(ReplyCode::PreconditionFailed, text));
        }
        if !consume.no_ack {
            let text = "reply consumer cannot acknowledge";
            return Err(Failure::channel(ReplyCode::PreconditionFailed, text));
        }
        let address = names.draw(REPLY_TO_PREFIX);
        caller.step.out.replies.push(ReplyOrder::Open(address.clone()));
        addresses.push((address.clone(), caller.at));
        let mut tag_wire = vec![u8::try_from(tag.len()).expect("a tag is a short string")];
        tag_wire.extend_from_slice(tag.as_bytes());
        self.0 = Some(Box::new(Consumer { address, tag_wire }));
        let answer = basic::ConsumeOk { consumer_tag: tag };
        caller.answer(consume.no_wait, &Method::BasicConsumeOk(answer));
        Ok(())
    }

    /// The address that requests of this channel carry.
    pub(crate) fn address(&self) -> Result<&str, Failure> {
        match &self.0 {
            Some(consumer) => Ok(&consumer.address),
            None => {
                let text = "fast reply consumer does not exist";
                Err(Failure::channel(ReplyCode::PreconditionFailed, text))
            }
        }
    }

    /// The reply consumer is cancelled, or its channel is at its end.
    pub(crate) fn end(&mut self, caller: &mut Caller<'_, '_>, addresses: &mut ReplyAddresses) {
        if let Some(consumer) = self.0.take() {
            addresses.retain(|(address, _)| *address != consumer.address);
            caller.step.out.replies.push(ReplyOrder::Close(consumer.address));
        }
    }

    /// A reply has come. `draw` gives its delivery tag.
    pub(crate) fn deliver(
        &self,
        caller: &mut Caller<'_, '_>,
        draw: impl FnOnce() -> u64,
        reply: &Reply,
    ) {
        let Some(consumer) = &self.0 else { return };
        let mut destination = vec![0, u8::try_from(reply.address.len()).unwrap_or(0)];
        destination.extend_from_slice(reply.address.as_bytes());
        encode_deliver(
            &mut caller.step.out.bytes,
            caller.client.frame_bytes_max,
            caller.at.number,
            &consumer.tag_wire,
            draw(),
            false,
            &destination,
            &reply.properties,
            &reply.body,
        );
        caller.counts.delivered(1, true, false);
    }
}
