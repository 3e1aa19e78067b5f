//! Which consumer is served by which partition, where a partition is one consumer's at a time.
//!
//! Nobody decides for all partitions: each leader works out the same from the consumers that it sees, since each
//! consumer asks all partitions to serve it. While the leaders see different consumers, a consumer has a partition too
//! many or too few for as long. It never matters to order: each partition serves one consumer at a time all the same.

use std::collections::BTreeMap;

use super::weight::Weight;
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
/// When a consumer comes or goes, few partitions change hands: each goes to the consumer that it likes best and that has
/// room (Thaler and Ravishankar, Using Name-Based Mappings to Increase Hit Rates).
pub(crate) fn assigned(
    Assignment { index, count }: Assignment,
    consumers: impl Iterator<Item = (ConsumerId, Weight)>,
) -> Option<ConsumerId> {
    let all: BTreeMap<Key, (ConsumerId, Weight)> =
        consumers.map(|(id, weight)| (key_of(id, index), (id, weight))).collect();
    let keys: Vec<Key> = all.keys().copied().collect();
    let weights: Vec<Weight> = all.values().map(|(_, weight)| *weight).collect();
    let Room { least, mut with_more } = Room::of(count, &weights)?;
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

/// How many partitions each consumer is to have.
struct Room {
    least: Vec<u64>,
    /// So many of them have one more, whoever is liked for it.
    with_more: u64,
}

impl Room {
    /// `None`: there is no consumer.
    fn of(count: u16, weights: &[Weight]) -> Option<Self> {
        let said = |weight: &Weight| match weight {
            Weight::Said(weight) => Some(u64::from(*weight)),
            Weight::Unknown | Weight::Measured(_) => None,
        };
        let is_measured = |weight: &Weight| matches!(weight, Weight::Measured(_));
        if weights.iter().any(|weight| said(weight).is_some()) {
            let all: Vec<u64> = weights.iter().map(|weight| said(weight).unwrap_or(1)).collect();
            Self::in_proportion(count, &all)
        } else if weights.len() < count.into() && weights.iter().any(is_measured) {
            Some(Self::by_capacity(count, weights))
        } else {
            Self::in_proportion(count, &vec![1; weights.len()])
        }
    }

    /// Every consumer gets as many partitions as its weight is of all weights, rounded down, or one more: with equal
    /// weights as many as any other, or one more.
    fn in_proportion(count: u16, weights: &[u64]) -> Option<Self> {
        let sum: u64 = weights.iter().sum();
        let least = |weight: &u64| (u64::from(count) * weight).checked_div(sum);
        let least: Vec<u64> = weights.iter().map(least).collect::<Option<_>>()?;
        let with_more = u64::from(count) - least.iter().sum::<u64>();
        Some(Self { least, with_more })
    }

    /// Every consumer gets one partition, so that it goes on to be measured; each of the others goes to whoever has the
    /// most to give per partition then (Jefferson's method).
    fn by_capacity(count: u16, weights: &[Weight]) -> Self {
        let capacity = |weight: &Weight| match weight {
            Weight::Measured(capacity) => Some(u128::from(capacity.share())),
            Weight::Unknown | Weight::Said(_) => None,
        };
        let known: Vec<u128> = weights.iter().filter_map(capacity).collect();
        let average = known.iter().sum::<u128>() / known.len().max(1) as u128;
        let all: Vec<u128> = weights.iter().map(|it| capacity(it).unwrap_or(average)).collect();
        let mut least = vec![1u64; all.len()];
        for _ in all.len()..count.into() {
            let with_one_more = |place: usize| u128::from(least[place]) + 1;
            let by_share = |one: &usize, other: &usize| {
                let (mine, others) = (all[*one], all[*other]);
                let order = (mine * with_one_more(*other)).cmp(&(others * with_one_more(*one)));
                order.then(other.cmp(one))
            };
            if let Some(place) = (0..all.len()).max_by(by_share) {
                least[place] += 1;
            }
        }
        Self { least, with_more: 0 }
    }
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
    use std::time::Duration;

    use super::*;
    use crate::ids::SessionId;
    use crate::queue::weight::Capacity;

    /// Which consumer each of `count` partitions serves.
    fn all(count: u16, sessions: &[u64]) -> Vec<u64> {
        let unknown = |session: &u64| (*session, Weight::Unknown);
        weighed(count, &sessions.iter().map(unknown).collect::<Vec<_>>())
    }

    /// Of messages in a second.
    fn measured(per_second: u64) -> Weight {
        let capacity = Capacity::of(per_second, Duration::from_secs(1));
        capacity.map_or(Weight::Unknown, Weight::Measured)
    }

    /// How many partitions each has.
    fn loads(count: u16, weights: &[Weight]) -> Vec<usize> {
        let sessions: Vec<_> = (1..).zip(weights.iter().copied()).collect();
        let assigned = weighed(count, &sessions);
        let of = |(session, _): &(u64, Weight)| assigned.iter().filter(|it| *it == session).count();
        sessions.iter().map(of).collect()
    }

    /// The same of consumers with weights.
    fn weighed(count: u16, sessions: &[(u64, Weight)]) -> Vec<u64> {
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
            let said: Vec<_> = weights.iter().map(|weight| Weight::Said(*weight)).collect();
            let loads = loads(count, &said);
            let sum: u16 = weights.iter().sum();
            for (load, weight) in loads.iter().zip(weights) {
                let least = usize::from(count * weight / sum);
                assert!(*load == least || *load == least + 1, "{count}, {weights:?}: {loads:?}");
            }
        }
    }

    #[test]
    fn who_can_do_more_has_more_and_everybody_one() {
        for (count, can, expected) in [
            (4, &[100, 100][..], &[2, 2][..]),
            (4, &[300, 100], &[3, 1]),
            (4, &[100_000, 1], &[3, 1]),
            (8, &[100, 100, 200], &[2, 2, 4]),
            (16, &[1, 1_000, 1_000], &[1, 8, 7]),
            (12, &[10, 20, 30], &[2, 4, 6]),
            // One of which nothing is known has as much as the others.
            (9, &[100, 0, 100], &[3, 3, 3]),
            (8, &[300, 0, 100], &[4, 3, 1]),
            // As many consumers as partitions: one each.
            (2, &[1, 1_000], &[1, 1]),
        ] {
            let weights: Vec<_> = can.iter().map(|it| measured(*it)).collect();
            assert_eq!(loads(count, &weights), expected, "{count} partitions of {can:?}");
        }
        assert_eq!(loads(8, &[Weight::Said(3), measured(1_000_000)]), [6, 2], "who says, counts");
        let loads = loads(2, &[measured(1), measured(100), measured(100)]);
        assert_eq!(loads.iter().sum::<usize>(), 2);
        assert!(loads.iter().all(|load| *load <= 1), "one waits, whoever it is: {loads:?}");
    }

    #[test]
    fn few_partitions_change_hands_when_one_can_do_less() {
        let (mut moved, mut least) = (0, 0);
        for slow in 1..=8 {
            let before: Vec<_> = (1..=8).map(|session| (session, measured(100))).collect();
            let after: Vec<_> = before
                .iter()
                .map(|(session, weight)| {
                    (*session, if *session == slow { measured(25) } else { *weight })
                })
                .collect();
            let (before, after) = (weighed(64, &before), weighed(64, &after));
            let of_slow = |all: &[u64]| all.iter().filter(|it| **it == slow).count();
            moved += before.iter().zip(&after).filter(|(one, other)| one != other).count();
            least += of_slow(&before) - of_slow(&after);
        }
        assert!(moved < 2 * least, "{moved} moved, {least} had to");
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
