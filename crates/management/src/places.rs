//! Places in streams, as nodes tell them each other and as they are shown.

use machine::{QueueId, StreamOffset};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// [`StreamOffset`] in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum To {
    First,
    Last,
    Next,
    At(u64),
    SinceMs(u64),
    AgoMs(u64),
}

impl To {
    pub(crate) fn of(offset: StreamOffset) -> Self {
        match offset {
            StreamOffset::First => Self::First,
            StreamOffset::Last => Self::Last,
            StreamOffset::Next => Self::Next,
            StreamOffset::At(seq) => Self::At(seq),
            StreamOffset::Since(ms) => Self::SinceMs(ms),
            StreamOffset::Ago(ms) => Self::AgoMs(ms),
        }
    }

    pub(crate) fn offset(self) -> StreamOffset {
        match self {
            Self::First => StreamOffset::First,
            Self::Last => StreamOffset::Last,
            Self::Next => StreamOffset::Next,
            Self::At(seq) => StreamOffset::At(seq),
            Self::SinceMs(ms) => StreamOffset::Since(ms),
            Self::AgoMs(ms) => StreamOffset::Ago(ms),
        }
    }
}

/// A partition, the first message that would be read there, and the next one that comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Row(pub(crate) u64, pub(crate) u64, pub(crate) u64);

/// The offset and what lies from there on, of each partition and of all. Of a partition whose leader says nothing that
/// is not known. Of two that say they lead it, the one that has more of it is right.
pub(crate) fn shown(partitions: impl Iterator<Item = QueueId>, rows: &[Row]) -> Value {
    let found = partitions.map(|queue| {
        let of_it = rows.iter().filter(|Row(of, _, _)| *of == queue.0);
        of_it.max_by_key(|Row(_, _, end)| *end).map(|Row(_, seq, end)| (*seq, *end))
    });
    let found: Vec<Option<(u64, u64)>> = found.collect();
    let messages = |(seq, end): (u64, u64)| end.saturating_sub(seq);
    let shown = found.iter().enumerate().map(|(index, place)| {
        json!({
            "partition": index,
            // The first message of a stream has the number 1, and the offset 0.
            "offset": place.map(|(seq, _)| seq.saturating_sub(1)),
            "messages": place.map(messages),
        })
    });
    let all: Option<u64> = found.iter().map(|place| place.map(messages)).sum();
    json!({ "partitions": shown.collect::<Vec<_>>(), "messages": all })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_partition_says_its_offset_and_what_lies_there() {
        let rows = [Row(7, 5, 11), Row(8, 1, 1), Row(7, 4, 9)];
        let all = shown([QueueId(7), QueueId(8)].into_iter(), &rows);
        let first = json!({ "partition": 0, "offset": 4, "messages": 6 });
        let second = json!({ "partition": 1, "offset": 0, "messages": 0 });
        assert_eq!(all, json!({ "partitions": [first, second], "messages": 6 }));
        let some = shown([QueueId(7), QueueId(9)].into_iter(), &rows);
        assert_eq!(
            some["partitions"][1],
            json!({ "partition": 1, "offset": null, "messages": null })
        );
        assert_eq!(some["messages"], Value::Null);
    }

    #[test]
    fn a_place_is_told_as_it_is() {
        for offset in [
            StreamOffset::First,
            StreamOffset::Last,
            StreamOffset::Next,
            StreamOffset::At(3),
            StreamOffset::Since(4),
            StreamOffset::Ago(5),
        ] {
            assert_eq!(To::of(offset).offset(), offset);
        }
    }
}
