//! A dead letter that somebody mends before it is sent on: with another payload, other headers, or both.

use amqp::{FieldWriter, Properties, TableRef};
use bytes::{BufMut as _, Bytes, BytesMut};

use super::super::rewrite::is_record;
use crate::stored::split_head;

/// What a message is sent on with instead of its own. What is `None` stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edit {
    pub payload: Option<Bytes>,
    /// All headers, as on the wire without their length.
    pub headers: Option<Bytes>,
}

impl Edit {
    /// What is stored of a message with this head instead of it, if `user` has edited the message. The record of its
    /// deaths stays, whatever the new headers say: it leads the message back, and counts. Who published the message did
    /// not write what is in it now, so it does not say `user_id` any more.
    pub(super) fn head(&self, head: &[u8], user: &str) -> BytesMut {
        let mut out = BytesMut::with_capacity(head.len());
        let (destination, raw) = split_head(head).unwrap_or_default();
        out.put_slice(destination);
        let Ok(properties) = Properties::decode(raw) else {
            // Nothing that a session has stored; it goes on as it is.
            out.put_slice(raw);
            return out;
        };
        let own = properties.headers.unwrap_or_default();
        let mut written = BytesMut::new();
        let headers = match &self.headers {
            None => properties.headers,
            Some(new) => {
                let new = TableRef::validate(new).unwrap_or_default();
                write_headers(new, own, &mut written);
                TableRef::validate(&written).ok().or(Some(new)).filter(|it| !it.is_empty())
            }
        };
        let user_id = properties.user_id.filter(|named| *named == user);
        Properties { headers, user_id, ..properties }.encode(&mut out);
        out
    }
}

/// The new headers, and what the message's own record.
fn write_headers(new: TableRef<'_>, own: TableRef<'_>, out: &mut BytesMut) {
    let mut fields = FieldWriter::new(out);
    let new = new.raw_fields().filter(|(name, _)| !is_record(name));
    let record = own.raw_fields().filter(|(name, _)| is_record(name));
    new.chain(record).for_each(|(_, field)| fields.raw(field));
}
