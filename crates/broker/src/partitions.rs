//! Which of a stream's partitions a message goes into.
//!
//! Messages of one key go into one partition, so their order is that of their publisher. Messages without a key go into
//! the partitions in turn, as many as one read of the socket brings into each: long runs are cheap.

use amqp::Properties;
use machine::{Catalog, GroupId, QueueId, Target};

use crate::message_key::KeySource;

/// A stream with several partitions, as a route leads to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Partitioned {
    target: Target,
    partitions: Vec<(GroupId, QueueId)>,
    key: KeySource,
}

impl Partitioned {
    /// `None`: the target is as it is.
    pub(crate) fn of(catalog: &Catalog, target: &Target) -> Option<Self> {
        let queue = catalog.queue_by_id(target.queue).filter(|_| target.has_partitions)?;
        let partitions = queue.partitions().map(|it| (it.group, it.queue)).collect();
        let key = KeySource::of(&queue.arguments);
        Some(Self { target: *target, partitions, key })
    }

    pub(crate) fn count(&self) -> usize {
        self.partitions.len()
    }

    /// What the partition with this number, counted from 0, is to who publishes to it.
    pub(crate) fn target(&self, index: usize) -> Target {
        let (group, queue) = self.partitions[index % self.partitions.len()];
        Target { group, queue, has_partitions: false, ..self.target }
    }

    /// Where a message goes: by its key, or if it has none to the one whose turn it is.
    pub(crate) fn choose(&self, key: &str, properties: &Properties<'_>, turn: usize) -> usize {
        match self.key.hash(key, properties) {
            Some(hash) => of_key(hash, self.partitions.len()),
            None => turn % self.partitions.len(),
        }
    }
}

/// Targets with several partitions become one of these.
pub(crate) fn place(
    catalog: &Catalog,
    targets: &mut [Target],
    key: &str,
    properties: &Properties<'_>,
    turn: usize,
) {
    for target in targets.iter_mut().filter(|target| target.has_partitions) {
        if let Some(partitioned) = Partitioned::of(catalog, target) {
            *target = partitioned.target(partitioned.choose(key, properties, turn));
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

    /// What was one partition's yesterday is its today.
    #[test]
    fn a_key_is_in_the_same_partition_in_every_version() {
        let all = ["customer-1", "customer-2", "customer-3", "7", ""];
        let of = all.map(|key| of_key(key_hash(key.as_bytes()), 16));
        assert_eq!(of, [9, 9, 10, 3, 12]);
    }
}
