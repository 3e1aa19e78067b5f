//! What a publisher remembers of each unconfirmed message: enough to send it again, and to say which
//! one the server refused.
//!
//! Messages keep their [`PublishSeq`] over reconnects, although the server counts every channel from 1:
//! what was not answered is sent first on the new channel, so the first tags are translated one by one
//! and all later ones by a constant. A message may so arrive twice; it is never forgotten.

use std::collections::{BTreeMap, VecDeque};

use amqp::{Decoder, Frame, Method, Properties, basic, encode_publish};
use bytes::{Buf, BytesMut};

use crate::channel::Content;
use crate::error::Error;
use crate::limits::SHORT_STRING_BYTES_MAX;
use crate::window::{PublishSeq, Run, UnknownSeq, Window};

/// Bytes of a content header frame beside the properties: frame head and end (8), class, weight and body size (12).
const HEADER_FRAME_BYTES: usize = 20;

/// What became of published messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// `basic.ack`: the server has taken responsibility.
    Confirmed(Run),
    /// `basic.nack`: the server could not take it. It may be published again.
    Refused(Run),
    /// `basic.return`: published as mandatory, and no queue was found for it.
    Returned { seq: PublishSeq, code: u16, text: String },
}

/// Where a message goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Address<'a> {
    /// Empty: the default exchange, whose routing key is a queue's name.
    pub exchange: &'a str,
    pub routing_key: &'a str,
    /// Return the message if no queue gets it.
    pub mandatory: bool,
}

impl<'a> Address<'a> {
    /// The queue of that name, by the default exchange; returned if there is none.
    pub fn queue(name: &'a str) -> Self {
        Self { exchange: "", routing_key: name, mandatory: true }
    }
}

/// The unconfirmed messages of one publisher, oldest first.
#[derive(Debug)]
pub(crate) struct Outstanding {
    window: Window,
    /// Encoded publishes, from the message numbered `kept_first` on.
    kept: BytesMut,
    /// Bytes of each of them.
    lengths: VecDeque<u32>,
    kept_first: u64,
    /// Where the next return is looked for first: servers return messages in their order.
    next_return: Place,
    /// Numbers that the channel's first tags stand for; empty on a first channel.
    resent: Vec<u64>,
    /// What is added to a tag above `resent.len()`.
    shift: u64,
    returned: BTreeMap<u64, (u16, String)>,
    verdicts: Vec<Verdict>,
}

/// A message among those that are kept.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    index: usize,
    /// Where its frames begin.
    at: usize,
}

impl Outstanding {
    pub(crate) fn new(window: u32) -> Self {
        Self {
            window: Window::new(window),
            kept: BytesMut::new(),
            lengths: VecDeque::new(),
            kept_first: 1,
            next_return: Place::default(),
            resent: Vec::new(),
            shift: 0,
            returned: BTreeMap::new(),
            verdicts: Vec::new(),
        }
    }

    pub(crate) fn window(&self) -> &Window {
        &self.window
    }

    /// Numbers the message, keeps its frames and appends them to `out`. There must be room.
    pub(crate) fn publish(
        &mut self,
        frame_max: u32,
        channel: u16,
        to: Address<'_>,
        raw_properties: &[u8],
        body: &[u8],
        out: &mut BytesMut,
    ) -> Result<PublishSeq, Error> {
        // A header frame cannot be cut into several: the server would close the connection.
        let room = (frame_max as usize).saturating_sub(HEADER_FRAME_BYTES);
        if frame_max > 0 && raw_properties.len() > room {
            let bytes = raw_properties.len();
            return Err(Error::invalid(format!(
                "the properties have {bytes} bytes, and a frame of this connection has {frame_max}"
            )));
        }
        let address = short_strings(to)?;
        let before = self.kept.len();
        let address = &address.bytes[..address.count];
        encode_publish(
            &mut self.kept,
            frame_max,
            channel,
            address,
            to.mandatory,
            raw_properties,
            body,
        );
        out.extend_from_slice(&self.kept[before..]);
        self.lengths.push_back((self.kept.len() - before) as u32);
        let seq = self.window.issue(1);
        let kept_last = self.kept_first + self.lengths.len() as u64 - 1;
        assert_eq!(kept_last, seq.0, "every message from the oldest unconfirmed one on is kept");
        Ok(seq)
    }

    /// `basic.ack` or `basic.nack` of the server.
    pub(crate) fn confirmed(
        &mut self,
        tag: u64,
        multiple: bool,
        positive: bool,
    ) -> Result<(), Error> {
        let seq = self.seq(tag);
        let (verdicts, returned) = (&mut self.verdicts, &mut self.returned);
        self.window
            .settle(seq, multiple, |run| push_run(verdicts, returned, run, positive))
            .map_err(|UnknownSeq(_)| {
                Error::protocol(format!("tag {tag} was confirmed, which is not outstanding"))
            })?;
        self.forget_settled();
        Ok(())
    }

    /// `basic.return`: the confirm of the same message follows. Says that it was found among the unconfirmed.
    pub(crate) fn returned(&mut self, content: &Content) -> Result<bool, Error> {
        let Method::BasicReturn(method) = Method::decode(&content.method)? else {
            return Err(Error::protocol("content for a publisher that is not a return"));
        };
        let properties = Properties::decode(&content.properties)?;
        let sought = Sought { method, id: properties.message_id, body: &content.body };
        let from = self.next_return;
        let found = self
            .find(&sought, from, self.lengths.len())
            .or_else(|| self.find(&sought, Place::default(), from.index));
        let Some(place) = found else { return Ok(false) };
        let seq = self.kept_first + place.index as u64;
        self.returned.insert(seq, (method.reply_code, method.reply_text.to_owned()));
        let at = place.at + self.lengths[place.index] as usize;
        self.next_return = Place { index: place.index + 1, at };
        Ok(true)
    }

    /// The first message of `from.index..end` that could have been returned.
    fn find(&self, sought: &Sought<'_>, from: Place, end: usize) -> Option<Place> {
        let mut place = from;
        while place.index < end {
            let length = self.lengths[place.index] as usize;
            let seq = self.kept_first + place.index as u64;
            if self.window.is_unsettled(PublishSeq(seq))
                && !self.returned.contains_key(&seq)
                && sought.is(&self.kept[place.at..place.at + length])
            {
                return Some(place);
            }
            place = Place { index: place.index + 1, at: place.at + length };
        }
        None
    }

    /// A new channel, in confirm mode: appends everything unconfirmed to `out` again, and says how many messages that
    /// is. The frames were made for `frame_max` and the same channel number.
    pub(crate) fn resend(&mut self, out: &mut BytesMut) -> u64 {
        self.resent.clear();
        self.returned.clear();
        self.next_return = Place::default();
        let mut at = 0;
        for (index, length) in self.lengths.iter().enumerate() {
            let seq = self.kept_first + index as u64;
            if self.window.is_unsettled(PublishSeq(seq)) {
                out.extend_from_slice(&self.kept[at..at + *length as usize]);
                self.resent.push(seq);
            }
            at += *length as usize;
        }
        assert_eq!(at, self.kept.len(), "what is kept is messages");
        self.shift = self.window.next().0 - 1 - self.resent.len() as u64;
        self.resent.len() as u64
    }

    /// Bytes of memory that hold messages from the oldest unconfirmed one on.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.kept.len()
    }

    pub(crate) fn verdicts(&mut self) -> &mut Vec<Verdict> {
        &mut self.verdicts
    }

    fn seq(&self, tag: u64) -> u64 {
        match tag.checked_sub(1).map(|index| self.resent.get(index as usize)) {
            None => 0, // With `multiple`: all so far.
            Some(Some(seq)) => *seq,
            Some(None) => tag.saturating_add(self.shift),
        }
    }

    fn forget_settled(&mut self) {
        while self.kept_first < self.window.first().0 {
            let length = self.lengths.pop_front().expect("every message has a length");
            self.kept.advance(length as usize);
            self.kept_first += 1;
            self.next_return = match self.next_return {
                Place { index: 0, .. } => Place::default(),
                Place { index, at } => Place { index: index - 1, at: at - length as usize },
            };
        }
        assert!(
            !self.lengths.is_empty() || self.kept.is_empty(),
            "without messages nothing is kept"
        );
    }
}

/// Adds `run`, cut at returned messages; joins it with the verdict before it where both say the same.
fn push_run(
    verdicts: &mut Vec<Verdict>,
    returned: &mut BTreeMap<u64, (u16, String)>,
    mut run: Run,
    positive: bool,
) {
    while let Some((&seq, _)) = returned.range(run.first.0..=run.last.0).next() {
        if seq > run.first.0 {
            let last = PublishSeq(seq - 1);
            push_plain(verdicts, Run { first: run.first, last }, positive);
        }
        let (code, text) = returned.remove(&seq).unwrap_or_default();
        verdicts.push(Verdict::Returned { seq: PublishSeq(seq), code, text });
        if seq == run.last.0 {
            return;
        }
        run.first = PublishSeq(seq + 1);
    }
    push_plain(verdicts, run, positive);
}

fn push_plain(verdicts: &mut Vec<Verdict>, run: Run, positive: bool) {
    match verdicts.last_mut() {
        Some(Verdict::Confirmed(last)) if positive && last.last.0 + 1 == run.first.0 => {
            last.last = run.last;
        }
        Some(Verdict::Refused(last)) if !positive && last.last.0 + 1 == run.first.0 => {
            last.last = run.last;
        }
        Some(Verdict::Confirmed(_) | Verdict::Refused(_) | Verdict::Returned { .. }) | None => {
            let verdict = if positive { Verdict::Confirmed } else { Verdict::Refused };
            verdicts.push(verdict(run));
        }
    }
}

/// Exchange and routing key as on the wire.
struct ShortStrings {
    bytes: [u8; 2 * (SHORT_STRING_BYTES_MAX + 1)],
    count: usize,
}

fn short_strings(to: Address<'_>) -> Result<ShortStrings, Error> {
    let mut pair = ShortStrings { bytes: [0; _], count: 0 };
    for (what, text) in [("exchange", to.exchange), ("routing key", to.routing_key)] {
        let length = u8::try_from(text.len()).map_err(|_| {
            Error::invalid(format!("the {what} is longer than {SHORT_STRING_BYTES_MAX} bytes"))
        })?;
        let end = pair.count + 1 + text.len();
        pair.bytes[pair.count] = length;
        pair.bytes[pair.count + 1..end].copy_from_slice(text.as_bytes());
        pair.count = end;
    }
    Ok(pair)
}

/// A message that was returned.
struct Sought<'a> {
    method: basic::Return<'a>,
    id: Option<&'a str>,
    body: &'a [u8],
}

impl Sought<'_> {
    /// Whether these publish frames are it: same exchange and key, and the same message-id, or without one
    /// the same body.
    fn is(&self, frames: &[u8]) -> bool {
        let decoder = Decoder::new(u32::MAX);
        let mut rest = frames;
        let mut body_rest = self.body;
        while let Ok(Some((frame, taken))) = decoder.decode(rest) {
            rest = &rest[taken..];
            match frame {
                Frame::Method { payload, .. } => {
                    let Ok(Method::BasicPublish(publish)) = Method::decode(payload) else {
                        return false;
                    };
                    let address = (publish.exchange, publish.routing_key);
                    if address != (self.method.exchange, self.method.routing_key) {
                        return false;
                    }
                }
                Frame::Header { properties, .. } => {
                    let id = Properties::decode(properties).ok().and_then(|found| found.message_id);
                    if id != self.id || id.is_some() {
                        return id == self.id;
                    }
                }
                Frame::Body { payload, .. } => {
                    let Some(after) = body_rest.strip_prefix(payload) else { return false };
                    body_rest = after;
                }
                Frame::Heartbeat { .. } => return false,
            }
        }
        body_rest.is_empty()
    }
}

#[cfg(test)]
mod tests;
