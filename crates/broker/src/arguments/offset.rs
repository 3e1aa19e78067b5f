//! Places in a stream, as clients and operators name them.
//!
//! A message's offset is one less than its sequence number: the first has offset 0.

use machine::StreamOffset;

use super::age::age_ms;

/// The message with this offset. What is below the oldest begins with that.
pub(crate) fn offset_of(offset: i64) -> StreamOffset {
    match u64::try_from(offset) {
        Ok(offset) => StreamOffset::At(offset.saturating_add(1)),
        Err(_) => StreamOffset::First,
    }
}

/// `first`, `last`, `next`, or how long ago: `90s`, `1D`. None: it is none of these.
pub(crate) fn word_of(text: &str) -> Option<StreamOffset> {
    match text {
        "first" => Some(StreamOffset::First),
        "last" => Some(StreamOffset::Last),
        "next" => Some(StreamOffset::Next),
        age => age_ms(age).map(StreamOffset::Ago),
    }
}
