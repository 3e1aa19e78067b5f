//! How strings are written. Whole numbers are written by `bytes::BufMut`, most significant byte first.

use bytes::{BufMut, BytesMut};

use crate::limits;
use crate::shortstr::shortstr_cut;

/// Writes a short string; of one that is too long, the part that fits.
#[inline]
pub(crate) fn put_shortstr(out: &mut BytesMut, text: &str) {
    let text = if text.len() <= limits::SHORTSTR_BYTES_MAX { text } else { shortstr_cut(text) };
    out.put_u8(u8::try_from(text.len()).unwrap_or(u8::MAX));
    out.put_slice(text.as_bytes());
}

#[inline]
pub(crate) fn put_longstr(out: &mut BytesMut, bytes: &[u8]) {
    out.put_u32(length_u32(bytes.len()));
    out.put_slice(bytes);
}

/// A length on the wire. What is measured lies in memory and in a frame: far below four gigabytes.
#[inline]
pub(crate) fn length_u32(length: usize) -> u32 {
    u32::try_from(length).expect("nothing that is sent in one piece has four gigabytes")
}

/// Writes a length of four octets that is not known yet, and says where.
pub(crate) fn put_length_later(out: &mut BytesMut) -> usize {
    let at = out.len();
    out.put_u32(0);
    at
}

/// Fills in what `put_length_later` left open: everything written after it is measured.
pub(crate) fn fill_length(out: &mut BytesMut, at: usize) {
    let start = at.saturating_add(4);
    let length = length_u32(out.len().saturating_sub(start));
    if let Some(place) = out.get_mut(at..start) {
        place.copy_from_slice(&length.to_be_bytes());
    }
}
