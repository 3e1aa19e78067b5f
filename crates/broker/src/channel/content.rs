//! Frames to a message. A message that lies whole in the read buffer is taken from there.

use amqp::{BodyCount, CLASS_BASIC, Frame, ReplyCode};

use crate::connection::unfinished::Unfinished;
use crate::errors::Failure;
use crate::limits;
use crate::passing::Passing;

/// A whole message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    /// Exchange and routing key as on the wire.
    pub(crate) destination: &'a [u8],
    pub(crate) bits: u8,
    pub(crate) properties: &'a [u8],
    pub(crate) body: &'a [u8],
}

impl<'a> Message<'a> {
    /// As who traces it sees it.
    pub(crate) fn passing(&self) -> Passing<'a> {
        Passing { destination: self.destination, properties: self.properties, body: self.body }
    }
}

/// The message of a channel whose frames have not all come, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Content(Option<Box<Begun>>);

/// What has come of a message.
#[derive(Debug)]
struct Begun {
    /// Exchange and routing key as on the wire.
    destination: Vec<u8>,
    bits: u8,
    announced: Option<Announced>,
}

#[derive(Debug)]
struct Announced {
    properties: Vec<u8>,
    /// Of the whole body, as counted among what is unfinished.
    body_bytes: u64,
    count: BodyCount,
    body: Vec<u8>,
}

/// A message whose frames came one by one.
pub(crate) struct Whole {
    destination: Vec<u8>,
    bits: u8,
    announced: Announced,
}

impl Whole {
    pub(crate) fn message(&self) -> Message<'_> {
        Message {
            destination: &self.destination,
            bits: self.bits,
            properties: &self.announced.properties,
            body: &self.announced.body,
        }
    }
}

impl Content {
    /// A publish whose content is still to come.
    pub(crate) fn begin(&mut self, destination: &[u8], bits: u8) {
        let destination = destination.to_vec();
        self.0 = Some(Box::new(Begun { destination, bits, announced: None }));
    }

    /// A content header. Gives the message if it has no body.
    pub(crate) fn header(
        &mut self,
        unfinished: &mut Unfinished,
        message_bytes_max: u64,
        class_id: u16,
        body_bytes: u64,
        properties: &[u8],
    ) -> Result<Option<Whole>, Failure> {
        let Some(begun) = &mut self.0 else { return Err(no_content("header")) };
        if begun.announced.is_some() {
            return Err(expected_body());
        }
        if class_id != CLASS_BASIC {
            let text = format!(
                "expected content header for class {CLASS_BASIC}, got one for class {class_id} instead"
            );
            return Err(Failure::connection(ReplyCode::UnexpectedFrame, text));
        }
        judge_size(message_bytes_max, body_bytes)?;
        // Nothing else that the node holds may take this room: a body that has begun can always end.
        unfinished.announced_bytes += body_bytes;
        begun.announced = Some(Announced {
            properties: properties.to_vec(),
            body_bytes,
            count: BodyCount::new(body_bytes),
            body: Vec::new(),
        });
        Ok(self.take_if_whole(unfinished))
    }

    /// A part of a body. Gives the message if it was the last.
    pub(crate) fn body(
        &mut self,
        unfinished: &mut Unfinished,
        message_bytes_max: u64,
        payload: &[u8],
    ) -> Result<Option<Whole>, Failure> {
        let Some(begun) = &mut self.0 else { return Err(no_content("body")) };
        let Some(announced) = &mut begun.announced else { return Err(expected_header()) };
        announced.count.accept(payload.len())?;
        let budget = limits::PARTIAL_BODIES_MESSAGES * message_bytes_max;
        unfinished.partial_bytes += payload.len() as u64;
        if unfinished.partial_bytes > budget {
            let text = format!("bodies that have begun hold more than {budget} bytes");
            return Err(Failure::connection(ReplyCode::ResourceError, text));
        }
        if announced.body.capacity() == 0 {
            // All at once: a buffer that grows by doubling is up to twice as large as what is counted.
            announced.body.reserve_exact(usize::try_from(announced.body_bytes).unwrap_or_default());
        }
        announced.body.extend_from_slice(payload);
        Ok(self.take_if_whole(unfinished))
    }

    fn take_if_whole(&mut self, unfinished: &mut Unfinished) -> Option<Whole> {
        let is_whole = |begun: &mut Box<Begun>| {
            begun.announced.as_ref().is_some_and(|announced| announced.count.is_complete())
        };
        let Begun { destination, bits, announced } = *self.0.take_if(is_whole)?;
        let announced = announced?;
        unfinished.end_body(announced.body.len(), announced.body_bytes);
        Some(Whole { destination, bits, announced })
    }

    /// The channel is at its end: what had begun will not come.
    pub(crate) fn give_up(&mut self, unfinished: &mut Unfinished) {
        if let Some(announced) = self.0.take().and_then(|begun| begun.announced) {
            unfinished.end_body(announced.body.len(), announced.body_bytes);
        }
    }

    /// A method where content was due.
    #[inline]
    pub(crate) fn missing(&self) -> Option<Failure> {
        let begun = self.0.as_ref()?;
        Some(if begun.announced.is_some() { expected_body() } else { expected_header() })
    }
}

/// Properties and body right behind a publish, and how many bytes their frames take.
type WholeContent<'a> = (&'a [u8], &'a [u8], usize);

/// The content of a publish, if all of it is in `rest`.
#[inline]
pub(crate) fn whole_content<'a>(
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

fn judge_size(max: u64, body_bytes: u64) -> Result<(), Failure> {
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
