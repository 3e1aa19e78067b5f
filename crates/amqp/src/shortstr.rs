//! Short strings have at most 255 bytes.

use crate::limits;

/// The part of `text` that a short string holds: at most 255 bytes, cut at a character's edge.
pub(crate) fn shortstr_cut(text: &str) -> &str {
    let end = text.floor_char_boundary(limits::SHORTSTR_BYTES_MAX);
    text.get(..end).unwrap_or(text)
}
