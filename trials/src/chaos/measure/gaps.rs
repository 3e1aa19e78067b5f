//! From what publishers saw to the figures of a failover. Needs no clock and no socket.

use crate::history::Nanos;

/// What became of one publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Confirmed(Nanos),
    /// `basic.nack`.
    Refused,
    /// The channel or the connection went, or nothing came in time.
    Unknown,
}

/// One publish.
#[derive(Clone, Copy, Debug)]
pub struct Publish {
    pub sent: Nanos,
    pub outcome: Outcome,
}

/// The longest time between two confirms of one publisher, of which the second came at or after
/// `from` and the first before `to`.
pub fn longest_gap(publishes: &[Publish], from: Nanos, to: Nanos) -> Nanos {
    let mut confirms: Vec<Nanos> = publishes.iter().filter_map(Publish::confirmed_at).collect();
    confirms.sort_unstable();
    confirms
        .windows(2)
        .filter(|pair| pair[1] >= from && pair[0] < to)
        .map(|pair| pair[1] - pair[0])
        .max()
        .unwrap_or(Nanos::MAX)
}

/// How many publishes begun from `from` until `to` were confirmed, and how many there were.
pub fn succeeded(publishes: &[Publish], from: Nanos, to: Nanos) -> (u64, u64) {
    let begun = publishes.iter().filter(|publish| (from..to).contains(&publish.sent));
    begun.fold((0, 0), |(succeeded, all), publish| {
        (succeeded + u64::from(publish.confirmed_at().is_some()), all + 1)
    })
}

impl Publish {
    fn confirmed_at(&self) -> Option<Nanos> {
        match self.outcome {
            Outcome::Confirmed(at) => Some(at),
            Outcome::Refused | Outcome::Unknown => None,
        }
    }
}

/// The middle one; the mean of the two in the middle would be a number that nobody measured.
pub fn median<T: PartialOrd + Copy + Default>(figures: &[T]) -> T {
    let mut figures = figures.to_vec();
    figures.sort_by(|one, other| one.partial_cmp(other).unwrap_or(std::cmp::Ordering::Equal));
    figures.get(figures.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn confirmed(sent: Nanos, at: Nanos) -> Publish {
        Publish { sent, outcome: Outcome::Confirmed(at) }
    }

    #[test]
    fn a_gap_counts_if_any_part_of_it_lies_in_the_time() {
        let seen = [confirmed(0, 1), confirmed(1, 50), confirmed(51, 60), confirmed(61, 200)];
        assert_eq!(longest_gap(&seen, 55, 70), 140);
        assert_eq!(longest_gap(&seen, 0, 55), 49);
        assert_eq!(longest_gap(&seen, 40, 45), 49);
    }

    #[test]
    fn a_publisher_that_never_hears_again_has_no_end_of_its_gap() {
        assert_eq!(longest_gap(&[confirmed(0, 1)], 5, 9), Nanos::MAX);
    }

    #[test]
    fn a_refused_publish_did_not_succeed() {
        let refused = Publish { sent: 5, outcome: Outcome::Refused };
        let unknown = Publish { sent: 6, outcome: Outcome::Unknown };
        let seen = [confirmed(1, 2), confirmed(5, 9), refused, unknown, confirmed(10, 11)];
        assert_eq!(succeeded(&seen, 5, 10), (1, 3));
    }

    #[test]
    fn the_median_is_one_of_the_figures() {
        assert_eq!(median(&[3, 1, 2, 9]), 3);
        assert_eq!(median::<u64>(&[]), 0);
    }
}
