//! The properties of a message: 14 optional fields behind a word of flags (AMQP 0-9-1 1.8.2, 4.2.6.1).
//!
//! A session that only passes a message on keeps the raw bytes and looks at this view of them. Decoding checks
//! everything, so that bytes which pass can be stored and sent again as they are.

use bytes::{BufMut, BytesMut};

use crate::error::{Error, Fault};
use crate::field_table::TableRef;
use crate::field_table::put_table;
use crate::reader::Reader;
use crate::writer::put_shortstr;

/// Flags of the properties, first field in the highest bit. The lowest bit would announce a further word of
/// flags; no property needs one.
mod flag {
    pub(super) const CONTENT_TYPE: u16 = 1 << 15;
    pub(super) const CONTENT_ENCODING: u16 = 1 << 14;
    pub(super) const HEADERS: u16 = 1 << 13;
    pub(super) const DELIVERY_MODE: u16 = 1 << 12;
    pub(super) const PRIORITY: u16 = 1 << 11;
    pub(super) const CORRELATION_ID: u16 = 1 << 10;
    pub(super) const REPLY_TO: u16 = 1 << 9;
    pub(super) const EXPIRATION: u16 = 1 << 8;
    pub(super) const MESSAGE_ID: u16 = 1 << 7;
    pub(super) const TIMESTAMP: u16 = 1 << 6;
    pub(super) const KIND: u16 = 1 << 5;
    pub(super) const USER_ID: u16 = 1 << 4;
    pub(super) const APP_ID: u16 = 1 << 3;
    pub(super) const CLUSTER_ID: u16 = 1 << 2;
    pub(super) const UNKNOWN: u16 = 0b11;
}

/// A view of a message's properties.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Properties<'a> {
    pub content_type: Option<&'a str>,
    pub content_encoding: Option<&'a str>,
    pub headers: Option<TableRef<'a>>,
    /// 2 is persistent, 1 and nothing are transient.
    pub delivery_mode: Option<u8>,
    pub priority: Option<u8>,
    pub correlation_id: Option<&'a str>,
    pub reply_to: Option<&'a str>,
    /// Milliseconds, as decimal text.
    pub expiration: Option<&'a str>,
    pub message_id: Option<&'a str>,
    /// Seconds since 1970.
    pub timestamp: Option<u64>,
    /// AMQP's `type`.
    pub kind: Option<&'a str>,
    pub user_id: Option<&'a str>,
    pub app_id: Option<&'a str>,
    pub cluster_id: Option<&'a str>,
}

impl<'a> Properties<'a> {
    /// Reads flags and values: all of `raw`, as `Frame::Header` has it. Allocates nothing.
    ///
    /// # Errors
    /// 502 for an unknown flag, text that is not UTF-8, a bad table, and bytes that are missing or left over; 406
    /// for headers that hold more than `limits` allows.
    #[inline]
    pub fn decode(raw: &'a [u8]) -> Result<Self, Error> {
        Self::read(raw).map_err(|fault| fault.within("properties"))
    }

    fn read(raw: &'a [u8]) -> Result<Self, Fault> {
        let mut reader = Reader::new(raw);
        let flags = reader.u16()?;
        if flags & flag::UNKNOWN != 0 {
            return Err(Fault::PropertyFlags(flags));
        }
        let mut properties = Self::default();
        if flags & flag::CONTENT_TYPE != 0 {
            properties.content_type = Some(reader.shortstr()?);
        }
        if flags & flag::CONTENT_ENCODING != 0 {
            properties.content_encoding = Some(reader.shortstr()?);
        }
        if flags & flag::HEADERS != 0 {
            properties.headers = Some(reader.table()?);
        }
        if flags & flag::DELIVERY_MODE != 0 {
            properties.delivery_mode = Some(reader.u8()?);
        }
        if flags & flag::PRIORITY != 0 {
            properties.priority = Some(reader.u8()?);
        }
        if flags & flag::CORRELATION_ID != 0 {
            properties.correlation_id = Some(reader.shortstr()?);
        }
        if flags & flag::REPLY_TO != 0 {
            properties.reply_to = Some(reader.shortstr()?);
        }
        if flags & flag::EXPIRATION != 0 {
            properties.expiration = Some(reader.shortstr()?);
        }
        if flags & flag::MESSAGE_ID != 0 {
            properties.message_id = Some(reader.shortstr()?);
        }
        if flags & flag::TIMESTAMP != 0 {
            properties.timestamp = Some(reader.u64()?);
        }
        if flags & flag::KIND != 0 {
            properties.kind = Some(reader.shortstr()?);
        }
        if flags & flag::USER_ID != 0 {
            properties.user_id = Some(reader.shortstr()?);
        }
        if flags & flag::APP_ID != 0 {
            properties.app_id = Some(reader.shortstr()?);
        }
        if flags & flag::CLUSTER_ID != 0 {
            properties.cluster_id = Some(reader.shortstr()?);
        }
        reader.finish()?;
        Ok(properties)
    }

    /// Writes flags and values.
    pub fn encode(&self, out: &mut BytesMut) {
        out.put_u16(self.flags());
        for text in [self.content_type, self.content_encoding].into_iter().flatten() {
            put_shortstr(out, text);
        }
        if let Some(headers) = self.headers {
            put_table(out, headers);
        }
        for octet in [self.delivery_mode, self.priority].into_iter().flatten() {
            out.put_u8(octet);
        }
        let texts = [self.correlation_id, self.reply_to, self.expiration, self.message_id];
        for text in texts.into_iter().flatten() {
            put_shortstr(out, text);
        }
        if let Some(seconds) = self.timestamp {
            out.put_u64(seconds);
        }
        let texts = [self.kind, self.user_id, self.app_id, self.cluster_id];
        for text in texts.into_iter().flatten() {
            put_shortstr(out, text);
        }
    }

    fn flags(&self) -> u16 {
        [
            (self.content_type.is_some(), flag::CONTENT_TYPE),
            (self.content_encoding.is_some(), flag::CONTENT_ENCODING),
            (self.headers.is_some(), flag::HEADERS),
            (self.delivery_mode.is_some(), flag::DELIVERY_MODE),
            (self.priority.is_some(), flag::PRIORITY),
            (self.correlation_id.is_some(), flag::CORRELATION_ID),
            (self.reply_to.is_some(), flag::REPLY_TO),
            (self.expiration.is_some(), flag::EXPIRATION),
            (self.message_id.is_some(), flag::MESSAGE_ID),
            (self.timestamp.is_some(), flag::TIMESTAMP),
            (self.kind.is_some(), flag::KIND),
            (self.user_id.is_some(), flag::USER_ID),
            (self.app_id.is_some(), flag::APP_ID),
            (self.cluster_id.is_some(), flag::CLUSTER_ID),
        ]
        .into_iter()
        .fold(0, |flags, (is_there, flag)| if is_there { flags | flag } else { flags })
    }
}
