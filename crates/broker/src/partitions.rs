//! Which of a stream's partitions a message goes into.
//!
//! Messages of one key go into one partition, so their order is that of their publisher. Messages without a key go into
//! the partitions in turn, as many as one read of the socket brings into each: long runs are cheap.

use machine::{Arguments, Catalog, GroupId, KeySource, QueueId, Target, Value};

/// What names the key of a queue's messages.
pub(crate) const BY: &str = "x-partition-by";
/// Of a stream: that messages go on while the partition of their key has no leader, out of their order.
pub(crate) const FALLBACK: &str = "x-unordered-fallback";

/// A stream with several partitions, as a route leads to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Partitioned {
    target: Target,
    partitions: Vec<(GroupId, QueueId)>,
    key: KeySource,
    /// A message with a key may go to another partition while its own does not answer.
    falls_back: bool,
}

impl Partitioned {
    /// `None`: the target is as it is.
    pub(crate) fn of(catalog: &Catalog, target: &Target) -> Option<Self> {
        let queue = catalog.queue_by_id(target.queue).filter(|_| target.has_partitions)?;
        let partitions = queue.partitions().map(|it| (it.group, it.queue)).collect();
        let key = named_key(&queue.arguments).unwrap_or_default();
        let falls_back = queue.arguments.find(FALLBACK) == Some(&Value::Bool(true));
        Some(Self { target: *target, partitions, key, falls_back })
    }

    pub(crate) fn count(&self) -> usize {
        self.partitions.len()
    }

    /// What the partition with this number, counted from 0, is to who publishes to it.
    pub(crate) fn target(&self, index: usize) -> Target {
        let (group, queue) = self.partitions[index % self.partitions.len()];
        Target { group, queue, has_partitions: false, ..self.target }
    }

    /// Where a message goes: by its key, or if it has none to the one whose turn it is, of those whose group answers.
    pub(crate) fn choose(
        &self,
        key: &str,
        properties: &[u8],
        turn: usize,
        silent: &[GroupId],
    ) -> usize {
        let count = self.partitions.len();
        let is_silent = |place: usize| silent.contains(&self.partitions[place % count].0);
        let first = match self.key.hash(key.as_bytes(), properties) {
            Some(hash) => {
                let place = of_key(hash, count);
                if !self.falls_back || !is_silent(place) {
                    return place;
                }
                place
            }
            None => turn % count,
        };
        let next = (first..first + count).find(|place| !is_silent(*place));
        next.unwrap_or(first) % count
    }
}

/// Where the arguments of a queue say that the key of its messages is, if they do.
pub(crate) fn named_key(arguments: &Arguments) -> Option<KeySource> {
    arguments.find(BY).and_then(Value::text).and_then(KeySource::parse)
}

/// Targets with several partitions become one of these. The properties are as AMQP writes them.
pub(crate) fn place(
    catalog: &Catalog,
    targets: &mut [Target],
    key: &str,
    properties: &[u8],
    turn: usize,
) {
    for target in targets.iter_mut().filter(|target| target.has_partitions) {
        if let Some(partitioned) = Partitioned::of(catalog, target) {
            *target = partitioned.target(partitioned.choose(key, properties, turn, &[]));
        }
    }
}

/// The partition of a key. With one partition more, as few keys as possible move, and all of these to the new one
/// (Lamping and Veach, A Fast, Minimal Memory, Consistent Hash Algorithm).
fn of_key(hash: u64, count: usize) -> usize {
    let mut state = hash;
    let (mut found, mut next) = (0, 0);
    while next < count as u64 {
        found = next;
        state = state.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        next = ((found + 1) << 31) / ((state >> 33) + 1);
    }
    usize::try_from(found).expect("it is below the count")
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::key_hash;

    fn of(key: u32, count: usize) -> usize {
        of_key(key_hash(&key.to_be_bytes()), count)
    }

    #[test]
    fn a_key_stays_where_it_is_or_moves_to_the_new_partition() {
        for count in 1..32 {
            let mut moved = 0;
            for key in 0..4096 {
                let (before, after) = (of(key, count), of(key, count + 1));
                assert!(after == before || after == count, "{key} of {count}");
                moved += usize::from(after != before);
            }
            let fair = 4096 / (count + 1);
            assert!((fair * 2 / 3..=fair * 3 / 2).contains(&moved), "{moved} of {count}");
        }
    }

    #[test]
    fn what_may_go_anywhere_goes_to_a_partition_that_answers() {
        let partition = |index: u32| (GroupId(index + 1), QueueId(u64::from(index) + 10));
        let target = Target::plain(QueueId(10), GroupId(1));
        let key = KeySource::parse("routing-key").unwrap();
        let stream = |falls_back| Partitioned {
            target,
            partitions: (0..4).map(partition).collect(),
            key: if falls_back { key.clone() } else { KeySource::MessageId },
            falls_back,
        };
        let properties = [0, 0];
        let keyless = stream(false);
        let silent = [GroupId(2), GroupId(3)];
        assert_eq!(
            (0..4).map(|it| keyless.choose("", &properties, it, &[])).collect::<Vec<_>>(),
            [0, 1, 2, 3]
        );
        assert_eq!(
            (0..4).map(|it| keyless.choose("", &properties, it, &silent)).collect::<Vec<_>>(),
            [0, 3, 3, 3]
        );
        let all: Vec<GroupId> = (1..=4).map(GroupId).collect();
        assert_eq!(keyless.choose("", &properties, 2, &all), 2, "all of them are as good");
        let keyed = Partitioned { falls_back: false, ..stream(true) };
        let own = keyed.choose("customer-1", &properties, 0, &[]);
        let silent = [keyed.partitions[own].0];
        assert_eq!(keyed.choose("customer-1", &properties, 3, &silent), own, "order is kept");
        assert_ne!(stream(true).choose("customer-1", &properties, 3, &silent), own);
    }

    /// The key is read of the bytes: whatever a client writes it as, it is what its text is.
    #[test]
    fn a_key_is_found_in_what_our_own_codec_writes() {
        use amqp::{FieldTable, FieldValue, Properties, TableRef};
        let hash = |value: FieldValue| {
            let other = ("before".to_owned(), FieldValue::Table(FieldTable::new()));
            let raw = FieldTable(vec![other, ("customer".to_owned(), value)]).to_bytes();
            let properties = Properties {
                content_type: Some("text"),
                headers: Some(TableRef::validate(&raw).unwrap()),
                ..Properties::default()
            };
            let mut bytes = bytes::BytesMut::new();
            properties.encode(&mut bytes);
            KeySource::parse("header:customer").unwrap().hash(b"", &bytes)
        };
        let seven = Some(key_hash(b"7"));
        for value in [
            FieldValue::LongStr(b"7".to_vec()),
            FieldValue::Bytes(b"7".to_vec()),
            FieldValue::I8(7),
            FieldValue::U8(7),
            FieldValue::I16(7),
            FieldValue::U16(7),
            FieldValue::I32(7),
            FieldValue::U32(7),
            FieldValue::I64(7),
            FieldValue::Timestamp(7),
        ] {
            assert_eq!(hash(value.clone()), seven, "{value:?}");
        }
        assert_eq!(hash(FieldValue::Bool(true)), Some(key_hash(b"true")));
        for value in [FieldValue::Void, FieldValue::F64(7.0), FieldValue::Table(FieldTable::new())]
        {
            assert_eq!(hash(value.clone()), None, "{value:?}");
        }
    }

    /// What was one partition's yesterday is its today.
    #[test]
    fn a_key_is_in_the_same_partition_in_every_version() {
        let all = ["customer-1", "customer-2", "customer-3", "7", ""];
        let of = all.map(|key| of_key(key_hash(key.as_bytes()), 16));
        assert_eq!(of, [9, 9, 10, 3, 12]);
    }
}
