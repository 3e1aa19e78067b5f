//! Bytes to frames. Of a frame the first seven bytes are judged before more is waited for, so a claimed length
//! costs nobody memory. Which frame may follow which is the session's business.

use crate::error::Error;
use crate::frame::{FRAME_END, Frame, TYPE_BODY, TYPE_HEADER, TYPE_HEARTBEAT, TYPE_METHOD};
use crate::limits;
use crate::reader::Reader;
use crate::reply_code::ReplyCode;

/// Class (2), weight (2), body size (8) and one word of flags (2).
const HEADER_PAYLOAD_BYTES_MIN: u32 = 14;
/// Class (2) and method (2).
const METHOD_PAYLOAD_BYTES_MIN: u32 = 4;

/// Cuts a stream of bytes into frames. Holds no bytes itself.
#[derive(Debug, Clone)]
pub struct Decoder {
    /// Some clients leave the overhead out of account; RabbitMQ forgives them, and so does this.
    payload_bytes_max: u32,
}

impl Decoder {
    /// `frame_max` is the largest frame in bytes; before `connection.tune-ok`
    /// `limits::FRAME_BYTES_BEFORE_TUNE`. See `set_frame_max` for what is made of odd values.
    pub fn new(frame_max: u32) -> Self {
        let mut decoder = Self { payload_bytes_max: 0 };
        decoder.set_frame_max(frame_max);
        decoder
    }

    /// Zero means no limit of the peer's, so `limits::FRAME_BYTES_MAX`. Values outside
    /// `FRAME_BYTES_MIN..=FRAME_BYTES_MAX` are taken as the nearer end; refusing them is the session's business.
    pub fn set_frame_max(&mut self, bytes: u32) {
        let bytes = if bytes == 0 { limits::FRAME_BYTES_MAX } else { bytes };
        let bytes = bytes.clamp(limits::FRAME_BYTES_MIN, limits::FRAME_BYTES_MAX);
        self.payload_bytes_max = bytes;
    }

    /// The first whole frame of `input` and how many bytes it took; none if more bytes are needed.
    ///
    /// # Errors
    /// 501 for an unknown type, a size above the limit or too small for its type, a heartbeat with a payload,
    /// and a wrong end octet; 505 for a content header with a weight. All end the connection.
    #[inline]
    pub fn decode<'a>(&self, input: &'a [u8]) -> Result<Option<(Frame<'a>, usize)>, Error> {
        let Some((head, rest)) = input.split_first_chunk::<7>() else {
            return match input.first() {
                Some(&kind) if !is_frame_type(kind) => Err(unknown_type(kind)),
                Some(_) | None => Ok(None),
            };
        };
        let [kind, channel_high, channel_low, size @ ..] = *head;
        let channel = u16::from_be_bytes([channel_high, channel_low]);
        let size = u32::from_be_bytes(size);
        self.judge(kind, channel, size)?;

        let Ok(payload_bytes) = usize::try_from(size) else { return Ok(None) };
        let Some((payload, rest)) = rest.split_at_checked(payload_bytes) else { return Ok(None) };
        let Some(&end) = rest.first() else { return Ok(None) };
        if end != FRAME_END {
            return Err(bad_end(kind, channel, end));
        }
        let frame = match kind {
            TYPE_METHOD => Frame::Method { channel, payload },
            TYPE_BODY => Frame::Body { channel, payload },
            TYPE_HEADER => content_header(channel, payload)?,
            _ => Frame::Heartbeat { channel },
        };
        let overhead = head.len().saturating_add(1);
        Ok(Some((frame, payload_bytes.saturating_add(overhead))))
    }

    #[inline]
    fn judge(&self, kind: u8, channel: u16, size: u32) -> Result<(), Error> {
        let least = match kind {
            TYPE_METHOD => METHOD_PAYLOAD_BYTES_MIN,
            TYPE_HEADER => HEADER_PAYLOAD_BYTES_MIN,
            TYPE_BODY | TYPE_HEARTBEAT => 0,
            _ => return Err(unknown_type(kind)),
        };
        let most = if kind == TYPE_HEARTBEAT { 0 } else { self.payload_bytes_max };
        if size < least || size > most {
            return Err(bad_size(kind, channel, size, least, most));
        }
        Ok(())
    }
}

fn is_frame_type(kind: u8) -> bool {
    matches!(kind, TYPE_METHOD | TYPE_HEADER | TYPE_BODY | TYPE_HEARTBEAT)
}

#[inline]
fn content_header(channel: u16, payload: &[u8]) -> Result<Frame<'_>, Error> {
    let mut reader = Reader::new(payload);
    let fixed = (|| Ok((reader.u16()?, reader.u16()?, reader.u64()?)))();
    let (class_id, weight, body_bytes) =
        fixed.map_err(|fault: crate::error::Fault| fault.within("content header"))?;
    if weight != 0 {
        return Err(bad_weight(channel, weight));
    }
    let properties = reader.rest();
    Ok(Frame::Header { channel, class_id, body_bytes, properties })
}

#[cold]
fn unknown_type(kind: u8) -> Error {
    Error::new(ReplyCode::FrameError, format!("unknown frame type {kind}"))
}

#[cold]
fn bad_size(kind: u8, channel: u16, size: u32, least: u32, most: u32) -> Error {
    let text = format!(
        "a frame of type {kind} on channel {channel} announces {size} bytes, \
         outside of {least} to {most}"
    );
    Error::new(ReplyCode::FrameError, text)
}

#[cold]
fn bad_end(kind: u8, channel: u16, end: u8) -> Error {
    let text = format!("a frame of type {kind} on channel {channel} ends in {end:#04x}, not 0xce");
    Error::new(ReplyCode::FrameError, text)
}

#[cold]
fn bad_weight(channel: u16, weight: u16) -> Error {
    let text = format!("a content header on channel {channel} has the weight {weight}, not 0");
    Error::new(ReplyCode::UnexpectedFrame, text)
}
