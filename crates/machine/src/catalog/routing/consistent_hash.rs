//! Consistent hash: to one destination, by a hash of the key, a header or a property. The key of a
//! binding is the weight of its destination: how large its share is beside the others'.
//!
//! Every destination draws a number from the message's hash and its own name, and the best wins
//! (rendezvous hashing). So a destination that goes gives up its own share and no other, one that comes
//! takes its share from all alike, and nothing but the bindings themselves decides, not their history.
//! RabbitMQ numbers buckets instead, and moves more when one is removed. As there, bindings of a
//! destination do not add up; here the heaviest counts.
//!
//! A draw `h` out of `n` is worth `-log2(h / n) / weight`, and the lowest wins: the chances are then
//! exactly as the weights. Among equal weights that is the highest draw, so it takes a logarithm for each
//! weight and not for each destination.

use std::collections::BTreeMap;

use super::super::exchanges::HashBy;
use super::super::{Binding, Destination};
use super::{Dest, Found, RouteError, Steps, hash};
use crate::value::{Arguments, Headers, ValueView};

#[derive(Clone, Debug)]
pub(in crate::catalog) struct ConsistentHash {
    by: HashBy,
    /// What the bindings of each destination weigh, the heaviest last.
    weights: BTreeMap<Dest, Vec<u32>>,
    /// The destinations of each weight, sorted.
    classes: BTreeMap<u32, Vec<Member>>,
}

#[derive(Clone, Debug)]
struct Member {
    dest: Dest,
    /// A hash of its name.
    seed: u64,
}

/// The weight that a binding's key says. None is more than 32 bits can say: larger ones count as that.
/// None: it is no number above 0, and the binding counts for nothing.
pub(in crate::catalog) fn weight(key: &str) -> Option<u32> {
    let digits = key.strip_prefix('+').unwrap_or(key);
    let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    let is_positive = digits.bytes().any(|digit| digit != b'0');
    (is_number && is_positive).then(|| digits.parse().unwrap_or(u32::MAX))
}

impl ConsistentHash {
    pub(super) fn new(by: HashBy) -> Self {
        Self { by, weights: BTreeMap::new(), classes: BTreeMap::new() }
    }

    pub(super) fn insert(&mut self, binding: &Binding, dest: Dest) {
        let Some(weight) = weight(&binding.key) else { return };
        let weights = self.weights.entry(dest.clone()).or_default();
        let before = weights.last().copied();
        let place = weights.partition_point(|other| *other <= weight);
        weights.insert(place, weight);
        let after = weights.last().copied();
        self.settle(&binding.destination, &dest, before, after);
    }

    pub(super) fn remove(&mut self, binding: &Binding, dest: &Dest) {
        let Some(weight) = weight(&binding.key) else { return };
        let Some(weights) = self.weights.get_mut(dest) else { return };
        let before = weights.last().copied();
        if let Ok(place) = weights.binary_search(&weight) {
            weights.remove(place);
        }
        let after = weights.last().copied();
        if after.is_none() {
            self.weights.remove(dest);
        }
        self.settle(&binding.destination, dest, before, after);
    }

    /// Moves a destination from the class it was in to the one it belongs to.
    fn settle(
        &mut self,
        destination: &Destination,
        dest: &Dest,
        before: Option<u32>,
        after: Option<u32>,
    ) {
        if before == after {
            return;
        }
        if let Some(weight) = before
            && let Some(members) = self.classes.get_mut(&weight)
        {
            members.retain(|member| member.dest != *dest);
            if members.is_empty() {
                self.classes.remove(&weight);
            }
        }
        if let Some(weight) = after {
            let members = self.classes.entry(weight).or_default();
            let place = members.partition_point(|member| member.dest < *dest);
            members.insert(place, Member { dest: dest.clone(), seed: seed(destination) });
        }
    }

    pub(in crate::catalog) fn find<'c>(
        &'c self,
        key: &str,
        headers: &dyn Headers,
        steps: &mut Steps,
        found: &mut Found<'c, '_>,
    ) -> Result<(), RouteError> {
        steps.count(self.weights.len())?;
        if self.weights.is_empty() {
            return Ok(());
        }
        let hashed = match &self.by {
            HashBy::Key => hash::of(key.as_bytes()),
            HashBy::Header(name) => hash_of(headers.find(name)),
            HashBy::Property(property) => hash_of(headers.property(*property)),
        };
        let mut best: Option<(u64, u32, &Dest)> = None;
        for (weight, members) in &self.classes {
            let draws = members.iter().map(|member| (hash::joined(member.seed, hashed), member));
            let Some((draw, member)) = draws.max_by_key(|(draw, _)| *draw) else { continue };
            let cost = minus_log2(draw);
            // cost / weight < of / than, without dividing.
            let is_better = best.is_none_or(|(of, than, _)| {
                u128::from(cost) * u128::from(than) < u128::from(of) * u128::from(*weight)
            });
            if is_better {
                best = Some((cost, *weight, &member.dest));
            }
        }
        if let Some((_, _, dest)) = best {
            found.add_one(dest);
        }
        Ok(())
    }
}

/// By name: a queue that is deleted and made again has its old share.
fn seed(destination: &Destination) -> u64 {
    let kind = match destination {
        Destination::Queue(_) => 1,
        Destination::Exchange(_) => 2,
    };
    hash::joined(kind, hash::of(destination.name().as_bytes()))
}

/// Messages without the header or property all go to the same destination.
fn hash_of(value: Option<ValueView<'_>>) -> u64 {
    let of_number = |kind, number| hash::joined(kind, number);
    match value {
        None | Some(ValueView::Void) => 0,
        Some(ValueView::LongStr(bytes) | ValueView::Bytes(bytes)) => hash::of(bytes),
        Some(ValueView::Bool(value)) => of_number(1, u64::from(value)),
        Some(ValueView::Int(value)) => of_number(2, value as u64),
        Some(ValueView::F32(bits)) => of_number(3, u64::from(bits)),
        Some(ValueView::F64(bits)) => of_number(4, bits),
        Some(ValueView::Decimal { scale, value }) => {
            of_number(5, u64::from(scale) << 32 | u64::from(value))
        }
        Some(ValueView::Timestamp(seconds)) => of_number(6, seconds),
        Some(ValueView::Nested(value)) => {
            let mut bytes = Vec::new();
            Arguments(vec![(String::new(), value)]).encode(&mut bytes);
            hash::of(&bytes)
        }
    }
}

const FRACTION_BITS: u32 = 32;

/// `-log2(draw / 2^64)` with 32 bits behind the point: from 64 for the lowest draw down to almost 0. In
/// whole numbers, so that all machines agree.
fn minus_log2(draw: u64) -> u64 {
    let draw = draw | 1;
    let zeros = draw.leading_zeros();
    // From 1 to under 2, with 63 bits behind the point. Squaring it doubles its logarithm: what then
    // stands before the point is the next bit.
    let mut mantissa = draw << zeros;
    let mut fraction = 0u64;
    for _ in 0..FRACTION_BITS {
        let square = u128::from(mantissa) * u128::from(mantissa);
        let is_two = square >> 127 == 1;
        fraction = fraction << 1 | u64::from(is_two);
        mantissa = (square >> if is_two { 64 } else { 63 }) as u64;
    }
    (u64::from(zeros + 1) << FRACTION_BITS) - fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logarithm_is_one_to_nine_digits() {
        for draw in [1u64, 2, 3, 1 << 32, 0x1234_5678_9abc_def0, 1 << 63, u64::MAX - 1, u64::MAX] {
            let expected = 64.0 - ((draw | 1) as f64).log2();
            let found = minus_log2(draw) as f64 / 2f64.powi(FRACTION_BITS as i32);
            assert!((found - expected).abs() < 1e-9, "{draw}: {found} is not {expected}");
        }
        assert!(minus_log2(u64::MAX) > 0);
        assert_eq!(minus_log2(0), 64 << FRACTION_BITS);
    }

    #[test]
    fn a_weight_is_a_positive_number_in_decimal_digits() {
        let cases = [
            ("1", Some(1)),
            ("+5", Some(5)),
            ("007", Some(7)),
            ("4294967295", Some(u32::MAX)),
            ("99999999999999999999999", Some(u32::MAX)),
            ("0", None),
            ("-1", None),
            ("", None),
            ("+", None),
            ("1.5", None),
            (" 1", None),
            ("two", None),
        ];
        for (key, expected) in cases {
            assert_eq!(weight(key), expected, "{key:?}");
        }
    }
}
