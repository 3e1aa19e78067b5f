//! Which consumer is served by which partition, where a partition is one consumer's at a time.
//!
//! Nobody decides for all partitions: each leader works out the same from the consumers that it sees, since each
//! consumer asks all partitions to serve it. While the leaders see different consumers, a consumer has a partition too
//! many or too few for as long. It never matters to order: each partition serves one consumer at a time all the same.

use std::collections::BTreeMap;

use crate::ids::ConsumerId;

/// Which of several partitions a queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// From 0.
    pub index: u16,
    pub count: u16,
}

/// What a consumer is to all partitions: the session's numbers for the partitions of one consumer are in a row.
type Key = (u64, u64);

fn key_of(consumer: ConsumerId, index: u16) -> Key {
    (consumer.session.0, consumer.number.wrapping_sub(index.into()))
}

/// The consumer that a partition is to serve, of those that want to be: `None` without any, or if each of more consumers
/// than there are partitions that goes before has one.
///
/// Every consumer gets as many partitions as its weight is of all weights, rounded down, or one more: with equal weights
/// as many as any other, or one more. When one comes or goes, few partitions change hands:
/// each goes to the consumer that it likes best and that has room (Thaler and Ravishankar, Using Name-Based Mappings to
/// Increase Hit Rates).
pub(crate) fn assigned(
    Assignment { index, count }: Assignment,
    consumers: impl Iterator<Item = (ConsumerId, u64)>,
) -> Option<ConsumerId> {
    let all: BTreeMap<Key, (ConsumerId, u64)> =
        consumers.map(|(id, weight)| (key_of(id, index), (id, weight))).collect();
    let keys: Vec<Key> = all.keys().copied().collect();
    let weights: u64 = all.values().map(|(_, weight)| weight).sum();
    let least = |weight: u64| (u64::from(count) * weight).checked_div(weights);
    let least: Vec<u64> =
        all.values().map(|(_, weight)| least(*weight)).collect::<Option<Vec<_>>>()?;
    let mut with_more = u64::from(count) - least.iter().sum::<u64>();
    let mut loads = vec![0; keys.len()];
    for partition in 0..count {
        let has_room = |place: usize, load: u64| {
            load < least[place] || (load == least[place] && with_more > 0)
        };
        let able = (0..keys.len()).filter(|place| has_room(*place, loads[*place]));
        let place = able.max_by_key(|place| (liking(partition, keys[*place]), *place))?;
        if partition == index {
            return all.get(&keys[place]).map(|(id, _)| *id);
        }
        with_more -= u64::from(loads[place] == least[place]);
        loads[place] += 1;
    }
    None
}

/// How much a partition likes a consumer: the same at every leader.
fn liking(partition: u16, (session, number): Key) -> u64 {
    [u64::from(partition), session, number].into_iter().fold(0, |hash: u64, part| {
        let mixed = (hash ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ (mixed >> 32)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::SessionId;

    /// Which consumer each of `count` partitions serves.
    fn all(count: u16, sessions: &[u64]) -> Vec<u64> {
        weighed(count, &sessions.iter().map(|session| (*session, 1)).collect::<Vec<_>>())
    }

    /// The same of consumers with weights.
    fn weighed(count: u16, sessions: &[(u64, u64)]) -> Vec<u64> {
        let of = |index| {
            // Consumers drew a number for each partition.
            let ids = sessions.iter().map(|(session, weight)| {
                let number = 1000 + u64::from(index);
                (ConsumerId { session: SessionId(*session), number }, *weight)
            });
            assigned(Assignment { index, count }, ids).expect("a consumer").session.0
        };
        (0..count).map(of).collect()
    }

    #[test]
    fn every_consumer_has_as_many_partitions_as_any_other_or_one_more() {
        for count in [1, 2, 7, 16, 64] {
            for consumers in 1..=count.into() {
                let sessions: Vec<u64> = (1..=consumers).collect();
                let assigned = all(count, &sessions);
                let of = |session: &u64| assigned.iter().filter(|it| *it == session).count();
                let loads: Vec<usize> = sessions.iter().map(of).collect();
                let (least, most) = (loads.iter().min().unwrap(), loads.iter().max().unwrap());
                assert!(most - least <= 1, "{count} partitions, {consumers} consumers: {loads:?}");
            }
        }
    }

    #[test]
    fn a_consumer_has_what_its_weight_is_of_all_weights() {
        for (count, weights) in [(12, &[1, 3, 2][..]), (16, &[1, 1]), (7, &[5, 1]), (3, &[1, 200])]
        {
            let sessions: Vec<_> = (1..).zip(weights.iter().copied()).collect();
            let assigned = weighed(count, &sessions);
            let sum: u64 = weights.iter().sum();
            for (session, weight) in sessions {
                let load = assigned.iter().filter(|it| **it == session).count() as u64;
                let least = u64::from(count) * weight / sum;
                assert!(load == least || load == least + 1, "{count}, {weights:?}: {assigned:?}");
            }
        }
    }

    #[test]
    fn few_partitions_change_hands_when_a_consumer_comes() {
        let (count, mut moved, mut least) = (64, 0, 0);
        for consumers in 1..16 {
            let before: Vec<u64> = (1..=consumers).collect();
            let after: Vec<u64> = (1..=consumers + 1).collect();
            let (before, after) = (all(count, &before), all(count, &after));
            moved += before.iter().zip(&after).filter(|(one, other)| one != other).count();
            least += usize::from(count) / (consumers as usize + 1);
        }
        assert!(moved < 2 * least, "{moved} moved, {least} had to");
    }

    #[test]
    fn of_more_consumers_than_partitions_each_partition_has_one_and_some_have_none() {
        let assigned = all(3, &[1, 2, 3, 4, 5]);
        let distinct: std::collections::BTreeSet<_> = assigned.iter().collect();
        assert_eq!(distinct.len(), 3);
        assert_eq!(super::assigned(Assignment { index: 0, count: 3 }, std::iter::empty()), None);
    }
}
