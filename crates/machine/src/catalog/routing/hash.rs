//! A hash that stays: the same bytes give the same number in every version and on every machine, so
//! that what was one destination's share yesterday is its share today.

use crate::encoding::digest;

/// The number of some bytes: also of the key by which a message goes into one of several partitions.
pub fn of(bytes: &[u8]) -> u64 {
    spread(digest(bytes))
}

/// One number of two; every bit of it depends on all of theirs.
pub(super) fn joined(one: u64, two: u64) -> u64 {
    spread(one.rotate_left(32) ^ two)
}

/// The finalizer of MurmurHash3.
fn spread(mut value: u64) -> u64 {
    value = (value ^ (value >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    value = (value ^ (value >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    value ^ (value >> 33)
}
