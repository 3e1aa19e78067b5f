//! What a publisher remembers of each unconfirmed message: enough to send it again, and to say which
//! one the server refused.
//!
//! Messages keep their [`PublishSeq`] over reconnects, although the server counts every channel from 1:
//! what was not answered is sent first on the new channel, so the first tags are translated one by one
//! and all later ones by a constant. A message may so arrive twice; it is never forgotten.

use std::collections::{BTreeMap, VecDeque};

use amqp::{Method, basic, encode_publish};
use bytes::{Buf, BytesMut};

use crate::channel::Content;
use crate::error::Error;
use crate::limits::SHORT_STRING_BYTES_MAX;
use crate::window::{PublishSeq, Run, UnknownSeq, Window};

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
    /// Numbers that the channel's first tags stand for; empty on a first channel.
    resent: Vec<u64>,
    /// What is added to a tag above `resent.len()`.
    shift: u64,
    returned: BTreeMap<u64, (u16, String)>,
    verdicts: Vec<Verdict>,
}

impl Outstanding {
    pub(crate) fn new(window: u32) -> Self {
        Self {
            window: Window::new(window),
            kept: BytesMut::new(),
            lengths: VecDeque::new(),
            kept_first: 1,
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
        Ok(self.window.issue(1))
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
        let mut at = 0;
        for (index, length) in self.lengths.iter().enumerate() {
            let frames = &self.kept[at..at + *length as usize];
            at += *length as usize;
            let seq = self.kept_first + index as u64;
            if self.window.is_unsettled(PublishSeq(seq))
                && !self.returned.contains_key(&seq)
                && is_same_message(frames, &method, &content.body)
            {
                self.returned.insert(seq, (method.reply_code, method.reply_text.to_owned()));
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A new channel, in confirm mode: appends everything unconfirmed to `out` again. The frames were
    /// made for `frame_max` and the same channel number.
    pub(crate) fn resend(&mut self, out: &mut BytesMut) {
        self.resent.clear();
        self.returned.clear();
        let mut at = 0;
        for (index, length) in self.lengths.iter().enumerate() {
            let seq = self.kept_first + index as u64;
            if self.window.is_unsettled(PublishSeq(seq)) {
                out.extend_from_slice(&self.kept[at..at + *length as usize]);
                self.resent.push(seq);
            }
            at += *length as usize;
        }
        self.shift = self.window.next().0 - 1 - self.resent.len() as u64;
    }

    /// Bytes kept for another attempt.
    #[cfg(test)]
    fn kept_bytes(&self) -> usize {
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
        }
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
        _ if positive => verdicts.push(Verdict::Confirmed(run)),
        _ => verdicts.push(Verdict::Refused(run)),
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

/// Whether these publish frames are what was returned: same exchange, key and body.
fn is_same_message(frames: &[u8], returned: &basic::Return<'_>, body: &[u8]) -> bool {
    let mut rest = frames;
    let mut body_rest = body;
    let mut is_method = true;
    while let Some((head, after)) = rest.split_first_chunk::<7>() {
        let size = u32::from_be_bytes([head[3], head[4], head[5], head[6]]) as usize;
        let Some((payload, after)) = after.split_at_checked(size) else { return false };
        rest = after.get(1..).unwrap_or_default();
        if is_method {
            let Ok(Method::BasicPublish(publish)) = Method::decode(payload) else { return false };
            let address = (publish.exchange, publish.routing_key);
            if address != (returned.exchange, returned.routing_key) {
                return false;
            }
            is_method = false;
        } else if head[0] == 3 {
            let Some(after) = body_rest.strip_prefix(payload) else { return false };
            body_rest = after;
        }
    }
    body_rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn publisher(messages: &[&str]) -> (Outstanding, BytesMut) {
        let mut outstanding = Outstanding::new(100);
        let mut out = BytesMut::new();
        for body in messages {
            publish(&mut outstanding, body, &mut out);
        }
        (outstanding, out)
    }

    fn publish(outstanding: &mut Outstanding, body: &str, out: &mut BytesMut) -> u64 {
        let to = Address::queue("q");
        let seq = outstanding.publish(4096, 1, to, &[0, 0], body.as_bytes(), out);
        seq.expect("the names are short").0
    }

    fn run(first: u64, last: u64) -> Run {
        Run { first: PublishSeq(first), last: PublishSeq(last) }
    }

    fn returned(body: &str) -> Content {
        let mut method = BytesMut::new();
        let code = basic::Return {
            reply_code: 312,
            reply_text: "NO_ROUTE",
            exchange: "",
            routing_key: "q",
        };
        Method::BasicReturn(code).encode(&mut method);
        let body = bytes::Bytes::copy_from_slice(body.as_bytes());
        Content { method: method.freeze(), properties: bytes::Bytes::new(), body }
    }

    #[test]
    fn confirms_of_neighbours_become_one_verdict() {
        let (mut outstanding, _) = publisher(&["a", "b", "c"]);
        outstanding.confirmed(1, false, true).expect("known");
        outstanding.confirmed(3, true, true).expect("known");
        assert_eq!(*outstanding.verdicts(), [Verdict::Confirmed(run(1, 3))]);
        assert_eq!(outstanding.kept_bytes(), 0);
    }

    #[test]
    fn a_nack_is_told_apart_from_the_acks_around_it() {
        let (mut outstanding, _) = publisher(&["a", "b", "c"]);
        outstanding.confirmed(2, false, false).expect("known");
        outstanding.confirmed(3, true, true).expect("known");
        let expected = [
            Verdict::Refused(run(2, 2)),
            Verdict::Confirmed(run(1, 1)),
            Verdict::Confirmed(run(3, 3)),
        ];
        assert_eq!(*outstanding.verdicts(), expected);
    }

    #[test]
    fn a_returned_message_is_not_told_as_confirmed() {
        let (mut outstanding, _) = publisher(&["a", "b", "c", "b"]);
        assert_eq!(outstanding.returned(&returned("b")), Ok(true));
        assert_eq!(outstanding.returned(&returned("zzz")), Ok(false));
        outstanding.confirmed(4, true, true).expect("known");
        let (code, text) = (312, "NO_ROUTE".to_string());
        let expected = [
            Verdict::Confirmed(run(1, 1)),
            Verdict::Returned { seq: PublishSeq(2), code, text },
            Verdict::Confirmed(run(3, 4)),
        ];
        assert_eq!(*outstanding.verdicts(), expected);
    }

    #[test]
    fn equal_messages_are_returned_oldest_first() {
        let (mut outstanding, _) = publisher(&["b", "b"]);
        assert_eq!(outstanding.returned(&returned("b")), Ok(true));
        assert_eq!(outstanding.returned(&returned("b")), Ok(true));
        assert_eq!(outstanding.returned(&returned("b")), Ok(false));
    }

    #[test]
    fn after_a_reconnect_the_unconfirmed_go_out_again_and_keep_their_numbers() {
        let (mut outstanding, first) = publisher(&["a", "b", "c", "d"]);
        let length = first.len() / 4;
        outstanding.confirmed(1, false, true).expect("known");
        outstanding.confirmed(3, false, true).expect("known");
        outstanding.verdicts().clear();

        let mut again = BytesMut::new();
        outstanding.resend(&mut again);
        assert_eq!(again, [&first[length..2 * length], &first[3 * length..]].concat());
        assert_eq!(publish(&mut outstanding, "e", &mut again), 5);

        outstanding.confirmed(2, false, true).expect("d has the tag 2 now");
        assert_eq!(*outstanding.verdicts(), [Verdict::Confirmed(run(4, 4))]);
        outstanding.confirmed(3, true, true).expect("e has the tag 3");
        assert_eq!(
            outstanding.verdicts()[1..],
            [Verdict::Confirmed(run(2, 2)), Verdict::Confirmed(run(5, 5))]
        );
        assert!(outstanding.window().is_empty());
    }

    #[test]
    fn a_confirm_of_what_is_not_outstanding_is_the_servers_mistake() {
        let (mut outstanding, _) = publisher(&["a"]);
        assert!(outstanding.confirmed(2, false, true).is_err());
        outstanding.confirmed(1, false, true).expect("known");
        assert!(outstanding.confirmed(1, false, true).is_err());
        assert!(outstanding.confirmed(u64::MAX, true, true).is_err());
    }

    #[test]
    fn a_routing_key_that_amqp_cannot_carry_is_refused_before_it_has_a_number() {
        let (mut outstanding, mut out) = publisher(&[]);
        let key = "k".repeat(256);
        let to = Address { routing_key: &key, ..Address::default() };
        assert!(outstanding.publish(4096, 1, to, &[0, 0], b"", &mut out).is_err());
        assert_eq!((outstanding.window().next(), out.len()), (PublishSeq(1), 0));
    }
}
