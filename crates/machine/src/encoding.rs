//! Reading and writing of numbers, strings and lengths: what every encoding of this crate is made of.
//!
//! Little-endian throughout. Reading is total: whatever the bytes, the answer is a value or `Corrupt`,
//! and nothing is reserved for a length before the bytes behind it are known to be there.

use std::fmt;

/// Bytes that no version of this crate wrote, or that a newer one did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt {
    /// What was being read.
    pub what: &'static str,
    /// Only a newer program can have written it.
    pub is_newer: bool,
}

impl Corrupt {
    pub const fn new(what: &'static str) -> Self {
        Self { what, is_newer: false }
    }

    /// It is well-formed as far as it can be understood, and this program is too old for it.
    pub const fn newer(what: &'static str) -> Self {
        Self { what, is_newer: true }
    }
}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, is_newer } = self;
        match is_newer {
            true => write!(f, "{what} was written by a newer program: upgrade this node"),
            false => write!(f, "{what} cannot be read: its bytes are not valid"),
        }
    }
}

impl std::error::Error for Corrupt {}

/// Takes values off the front of bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    what: &'static str,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8], what: &'static str) -> Self {
        Self { bytes, what }
    }

    pub(crate) fn corrupt(&self) -> Corrupt {
        Corrupt::new(self.what)
    }

    /// Everything that is left.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    #[inline]
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Corrupt> {
        let (taken, rest) = self.bytes.split_at_checked(count).ok_or(Corrupt::new(self.what))?;
        self.bytes = rest;
        Ok(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Corrupt> {
        let (taken, rest) = self.bytes.split_first_chunk::<N>().ok_or(Corrupt::new(self.what))?;
        self.bytes = rest;
        Ok(*taken)
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Result<u8, Corrupt> {
        Ok(self.array::<1>()?[0])
    }

    #[inline]
    pub(crate) fn u16(&mut self) -> Result<u16, Corrupt> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Result<u32, Corrupt> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    #[inline]
    pub(crate) fn u64(&mut self) -> Result<u64, Corrupt> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn u128(&mut self) -> Result<u128, Corrupt> {
        Ok(u128::from_le_bytes(self.array()?))
    }

    pub(crate) fn bool(&mut self) -> Result<bool, Corrupt> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.corrupt()),
        }
    }

    /// Seven bits a byte, low ones first, at most ten bytes.
    pub(crate) fn varint(&mut self) -> Result<u64, Corrupt> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(self.corrupt());
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.corrupt())
    }

    /// Bytes behind a length of four bytes.
    pub(crate) fn blob(&mut self) -> Result<&'a [u8], Corrupt> {
        let count = self.u32()? as usize;
        self.take(count)
    }

    /// Text behind a length of four bytes.
    pub(crate) fn text(&mut self) -> Result<&'a str, Corrupt> {
        std::str::from_utf8(self.blob()?).map_err(|_| Corrupt::new(self.what))
    }

    pub(crate) fn string(&mut self) -> Result<String, Corrupt> {
        self.text().map(str::to_owned)
    }

    /// Nothing may be left.
    pub(crate) fn end(&self) -> Result<(), Corrupt> {
        if self.bytes.is_empty() { Ok(()) } else { Err(self.corrupt()) }
    }
}

pub(crate) fn put_bool(out: &mut Vec<u8>, value: bool) {
    out.push(u8::from(value));
}

pub(crate) fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value as u8) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(crate) fn put_blob(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u32(out, length(bytes.len()));
    out.extend_from_slice(bytes);
}

pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    put_blob(out, text.as_bytes());
}

/// A length as it is written. Nothing that is encoded comes near 4 GiB: messages are bounded by the
/// rim, entries by the cluster.
pub(crate) fn length(count: usize) -> u32 {
    u32::try_from(count).expect("lengths are bounded far below 4 GiB before they are encoded")
}

/// One number for bytes, to compare replicas by: FNV-1a over words, not meant against an attacker.
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    let mut value = 0xcbf2_9ce4_8422_2325;
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        let word = u64::from_le_bytes(word.try_into().expect("a chunk of eight is eight long"));
        value = mix(value, word);
    }
    for byte in words.remainder() {
        value = mix(value, u64::from(*byte));
    }
    mix(value, bytes.len() as u64)
}

/// One link of a chained checksum.
pub(crate) fn mix(chain: u64, value: u64) -> u64 {
    let mixed = (chain ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_varint_comes_back_and_takes_ten_bytes_at_most() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            assert!(out.len() <= 10);
            let mut reader = Reader::new(&out, "test");
            assert_eq!(reader.varint(), Ok(value));
            assert_eq!(reader.end(), Ok(()));
        }
    }

    #[test]
    fn a_varint_above_64_bits_or_without_an_end_is_refused() {
        for bytes in [
            &[0xff; 11][..],
            &[0xff; 9],
            &[0x80, 0x80],
            &[255, 255, 255, 255, 255, 255, 255, 255, 255, 2],
        ] {
            assert!(Reader::new(bytes, "test").varint().is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn a_length_beyond_the_end_is_refused() {
        assert!(Reader::new(&[5, 0, 0, 0, 1], "test").blob().is_err());
        assert!(Reader::new(&[255, 255, 255, 255], "test").text().is_err());
        assert!(Reader::new(&[1, 0, 0, 0, 0xff], "test").text().is_err());
    }
}
