//! Publishing: frames to a message. A message that lies whole in the read buffer is taken from there.

use amqp::{BodyCount, CLASS_BASIC, Frame, Method, ReplyCode};

use crate::channel::Channel;
use crate::channel::publish::Message;
use crate::connection::{Trunk, Turn};
use crate::errors::Failure;
use crate::limits;

const IMMEDIATE: u8 = 2;

/// A message whose frames have not all come.
#[derive(Debug)]
pub(crate) struct Content {
    /// Exchange and routing key as on the wire.
    destination: Vec<u8>,
    bits: u8,
    announced: Option<Announced>,
}

#[derive(Debug)]
struct Announced {
    properties: Vec<u8>,
    /// Of the whole body, as told to the trunk.
    body_bytes: u64,
    count: BodyCount,
    body: Vec<u8>,
}

/// Exchange and routing key as they stand in a `basic.publish`, and its bits. None: malformed.
fn split_publish(payload: &[u8]) -> Option<(&[u8], u8)> {
    const BEFORE: usize = 6; // Class (2), method (2), reserved (2).
    let exchange = 1 + usize::from(*payload.get(BEFORE)?);
    let key = 1 + usize::from(*payload.get(BEFORE + exchange)?);
    let end = BEFORE + exchange + key;
    match payload.get(end..)? {
        [bits] => Some((payload.get(BEFORE..end)?, *bits)),
        _ => None,
    }
}

impl Channel {
    /// `basic.publish`. Takes the content along if all of it is in `rest`; says how much of it.
    #[inline]
    pub(crate) fn publish(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        decoder: &amqp::Decoder,
        payload: &[u8],
        rest: &[u8],
    ) -> Result<usize, Failure> {
        let version = turn.view.catalog.version();
        let (destination, bits) = match split_publish(payload) {
            Some(found) if trunk.routes.find(version, found.0).is_some() => found,
            // Not known to be valid text: the codec looks at all of it.
            found => {
                Method::decode(payload)?;
                let malformed = || amqp::Error::new(ReplyCode::SyntaxError, "basic.publish");
                found.ok_or_else(malformed)?
            }
        };
        if bits & IMMEDIATE != 0 {
            return Err(Failure::connection(ReplyCode::NotImplemented, "immediate=true"));
        }
        if let Some((properties, body, used)) = whole_content(decoder, self.at.number, rest)?
            && body.len() as u64 <= trunk.config.message_bytes_max
        {
            self.message(trunk, turn, Message { destination, bits, properties, body })?;
            return Ok(used);
        }
        let destination = destination.to_vec();
        self.content = Some(Box::new(Content { destination, bits, announced: None }));
        Ok(0)
    }

    /// A content header.
    pub(crate) fn content_header(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        class_id: u16,
        body_bytes: u64,
        properties: &[u8],
    ) -> Result<(), Failure> {
        let Some(content) = &mut self.content else { return Err(no_content("header")) };
        if content.announced.is_some() {
            return Err(expected_body());
        }
        if class_id != CLASS_BASIC {
            let text = format!(
                "expected content header for class {CLASS_BASIC}, got one for class {class_id} instead"
            );
            return Err(Failure::connection(ReplyCode::UnexpectedFrame, text));
        }
        judge_size(trunk, body_bytes)?;
        // Nothing else that the node holds may take this room: a body that has begun can always end.
        trunk.announced_bytes += body_bytes;
        content.announced = Some(Announced {
            properties: properties.to_vec(),
            body_bytes,
            count: BodyCount::new(body_bytes),
            body: Vec::new(),
        });
        self.content_if_complete(trunk, turn)
    }

    /// A part of a body.
    pub(crate) fn content_body(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
        payload: &[u8],
    ) -> Result<(), Failure> {
        let Some(content) = &mut self.content else { return Err(no_content("body")) };
        let Some(announced) = &mut content.announced else { return Err(expected_header()) };
        announced.count.accept(payload.len())?;
        let budget = limits::PARTIAL_BODIES_MESSAGES * trunk.config.message_bytes_max;
        trunk.partial_bytes += payload.len() as u64;
        if trunk.partial_bytes > budget {
            let text = format!("bodies that have begun hold more than {budget} bytes");
            return Err(Failure::connection(ReplyCode::ResourceError, text));
        }
        if announced.body.capacity() == 0 {
            // All at once: a buffer that grows by doubling is up to twice as large as what is counted.
            announced.body.reserve_exact(usize::try_from(announced.body_bytes).unwrap_or_default());
        }
        announced.body.extend_from_slice(payload);
        self.content_if_complete(trunk, turn)
    }

    fn content_if_complete(
        &mut self,
        trunk: &mut Trunk,
        turn: &mut Turn<'_>,
    ) -> Result<(), Failure> {
        let is_complete = |content: &mut Box<Content>| {
            content.announced.as_ref().is_some_and(|announced| announced.count.is_complete())
        };
        let Some(content) = self.content.take_if(is_complete) else { return Ok(()) };
        let Some(announced) = &content.announced else { return Ok(()) };
        trunk.partial_bytes -= announced.body.len() as u64;
        trunk.announced_bytes -= announced.body_bytes;
        let message = Message {
            destination: &content.destination,
            bits: content.bits,
            properties: &announced.properties,
            body: &announced.body,
        };
        self.message(trunk, turn, message)
    }

    /// The channel is at its end: what had begun will not come.
    pub(crate) fn drop_content(&mut self, trunk: &mut Trunk) {
        if let Some(content) = self.content.take()
            && let Some(announced) = content.announced
        {
            trunk.partial_bytes -= announced.body.len() as u64;
            trunk.announced_bytes -= announced.body_bytes;
        }
    }

    /// A method where content was due.
    pub(crate) fn content_missing(&self) -> Option<Failure> {
        let content = self.content.as_ref()?;
        Some(if content.announced.is_some() { expected_body() } else { expected_header() })
    }
}

/// Properties and body right behind a publish, and how many bytes their frames take.
type WholeContent<'a> = (&'a [u8], &'a [u8], usize);

/// The content of a publish, if all of it is in `rest`.
#[inline]
fn whole_content<'a>(
    decoder: &amqp::Decoder,
    channel: u16,
    rest: &'a [u8],
) -> Result<Option<WholeContent<'a>>, Failure> {
    let Some((header, used)) = decoder.decode(rest)? else { return Ok(None) };
    let Frame::Header { channel: of, class_id: CLASS_BASIC, body_bytes, properties } = header
    else {
        return Ok(None);
    };
    if of != channel {
        return Ok(None);
    }
    if body_bytes == 0 {
        return Ok(Some((properties, &[], used)));
    }
    let Some(behind) = rest.get(used..) else { return Ok(None) };
    let Some((Frame::Body { channel: of, payload }, more)) = decoder.decode(behind)? else {
        return Ok(None);
    };
    if of != channel || payload.len() as u64 != body_bytes {
        return Ok(None);
    }
    Ok(Some((properties, payload, used + more)))
}

fn judge_size(trunk: &Trunk, body_bytes: u64) -> Result<(), Failure> {
    let max = trunk.config.message_bytes_max;
    if i64::try_from(body_bytes).is_err() {
        let text = format!("a content header announces {body_bytes} bytes");
        return Err(Failure::connection(ReplyCode::FrameError, text));
    }
    if body_bytes > max {
        let text = format!("message size {body_bytes} is larger than configured max size {max}");
        return Err(Failure::channel(ReplyCode::PreconditionFailed, text));
    }
    Ok(())
}

fn no_content(kind: &str) -> Failure {
    let text = format!("expected method frame, got content {kind} frame instead");
    Failure::connection(ReplyCode::UnexpectedFrame, text)
}

fn expected_header() -> Failure {
    let text = format!(
        "expected content header for class {CLASS_BASIC}, got non content header frame instead"
    );
    Failure::connection(ReplyCode::UnexpectedFrame, text)
}

fn expected_body() -> Failure {
    Failure::connection(
        ReplyCode::UnexpectedFrame,
        "expected content body, got non content body frame instead",
    )
}
