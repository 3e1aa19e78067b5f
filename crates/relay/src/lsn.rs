//! A place in PostgreSQL's write-ahead log.

use std::fmt;
use std::str::FromStr;

/// Log sequence number. Zero: nowhere yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lsn(pub u64);

impl Lsn {
    /// The smallest place behind this one.
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Lsn {
    /// As PostgreSQL writes it: `16/B374D848`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:X}/{:X}", self.0 >> 32, self.0 as u32)
    }
}

impl FromStr for Lsn {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let part = |part: &str| u32::from_str_radix(part, 16).ok().map(u64::from);
        text.split_once('/')
            .and_then(|(high, low)| Some(Self((part(high)? << 32) | part(low)?)))
            .ok_or_else(|| format!("`{text}` is not a place in the log"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_written_and_read_as_postgresql_does() {
        let lsn = Lsn(0x16_b374_d848);
        assert_eq!(lsn.to_string(), "16/B374D848");
        assert_eq!("16/B374D848".parse(), Ok(lsn));
        assert_eq!("0/0".parse(), Ok(Lsn(0)));
        for text in ["", "16", "16/", "/1", "g/1", "1/2/3", "100000000/0"] {
            assert!(text.parse::<Lsn>().is_err(), "{text}");
        }
    }
}
