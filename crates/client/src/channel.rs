//! One channel: puts contents together and tells apart what a server may send on it.
//!
//! ```text
//!            channel.open-ok          close()               channel.close-ok
//!  Opening ───────────────────> Open ─────────> Closing ─────────────────────> (forgotten)
//!                                │  channel.close: answered with close-ok
//!                                └────────────────────────────────────────────> (forgotten)
//! ```

use amqp::{BodyCount, Frame, Method};
use bytes::{Bytes, BytesMut};

use crate::error::Error;
use crate::limits::BODY_BYTES_MAX;

/// A message as it came: views of the bytes that were received, nothing copied unless the body came in parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// The payload of `basic.deliver`, `basic.get-ok` or `basic.return`.
    pub method: Bytes,
    /// Property flags and values, as on the wire.
    pub properties: Bytes,
    pub body: Bytes,
}

/// What the frames of one channel add up to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// A method without content.
    Method(Bytes),
    Content(Content),
}

#[derive(Debug)]
enum State {
    Opening,
    Open,
    Closing,
}

/// A content whose header or body is still to come.
#[derive(Debug)]
struct Gathering {
    method: Bytes,
    /// None until the header is there.
    rest: Option<(Bytes, BodyCount)>,
    /// The first part, as it came: most bodies have one part.
    first: Bytes,
    /// All parts, once there are two.
    parts: BytesMut,
}

/// What is known of a channel.
#[derive(Debug)]
pub(crate) struct Channel {
    state: State,
    gathering: Option<Gathering>,
}

impl Channel {
    pub(crate) fn new() -> Self {
        Self { state: State::Opening, gathering: None }
    }

    pub(crate) fn opened(&mut self) -> Result<(), Error> {
        match self.state {
            State::Opening => self.state = State::Open,
            State::Closing => (),
            State::Open => return Err(Error::protocol("a channel was opened twice")),
        }
        Ok(())
    }

    /// From here on everything but `channel.close-ok` is dropped.
    pub(crate) fn close(&mut self) {
        self.state = State::Closing;
        self.gathering = None;
    }

    pub(crate) fn is_closing(&self) -> bool {
        matches!(self.state, State::Closing)
    }

    /// Takes the next frame of this channel; `received` is the buffer that `frame` is a view of.
    pub(crate) fn accept(
        &mut self,
        frame: Frame<'_>,
        received: &Bytes,
    ) -> Result<Option<Heard>, Error> {
        match frame {
            Frame::Method { payload, .. } => self.method(received.slice_ref(payload)),
            _ if self.is_closing() => Ok(None),
            Frame::Header { body_bytes, properties, .. } => {
                self.header(body_bytes, received.slice_ref(properties))
            }
            Frame::Body { payload, .. } => self.body(received.slice_ref(payload)),
            Frame::Heartbeat { .. } => Err(Error::protocol("a heartbeat on a channel")),
        }
    }

    fn method(&mut self, payload: Bytes) -> Result<Option<Heard>, Error> {
        if self.gathering.is_some() {
            return Err(Error::protocol("a method came between the frames of a message"));
        }
        if !has_content(&payload) {
            return Ok(Some(Heard::Method(payload)));
        }
        if !self.is_closing() {
            let (first, parts) = (Bytes::new(), BytesMut::new());
            self.gathering = Some(Gathering { method: payload, rest: None, first, parts });
        }
        Ok(None)
    }

    fn header(&mut self, body_bytes: u64, properties: Bytes) -> Result<Option<Heard>, Error> {
        let gathering = self.gathering.as_mut().filter(|gathering| gathering.rest.is_none());
        let gathering = gathering.ok_or_else(|| Error::protocol("a header without its method"))?;
        if body_bytes > BODY_BYTES_MAX {
            let text =
                format!("a body of {body_bytes} bytes; more than {BODY_BYTES_MAX} are refused");
            return Err(Error::protocol(text));
        }
        gathering.rest = Some((properties, BodyCount::new(body_bytes)));
        Ok(if body_bytes == 0 { self.complete() } else { None })
    }

    fn body(&mut self, part: Bytes) -> Result<Option<Heard>, Error> {
        let gathering = self.gathering.as_mut();
        let Some(Gathering { rest: Some((_, count)), first, parts, .. }) = gathering else {
            return Err(Error::protocol("a body without its header"));
        };
        let is_complete = count.accept(part.len())?;
        if parts.is_empty() && first.is_empty() {
            *first = part;
        } else {
            parts.extend_from_slice(&std::mem::take(first));
            parts.extend_from_slice(&part);
        }
        Ok(if is_complete { self.complete() } else { None })
    }

    fn complete(&mut self) -> Option<Heard> {
        let Gathering { method, rest, first, parts } = self.gathering.take()?;
        let (properties, _) = rest?;
        let body = if parts.is_empty() { first } else { parts.freeze() };
        Some(Heard::Content(Content { method, properties, body }))
    }
}

fn has_content(payload: &[u8]) -> bool {
    // basic.return, basic.deliver, basic.get-ok: all that a server sends with content.
    matches!(Method::peek_ids(payload), Some((60, 50 | 60 | 71)))
}
