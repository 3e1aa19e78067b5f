//! A place in a binlog: the number of a file, and an offset in it. As one number, so that places compare as those of
//! PostgreSQL's log do.

use crate::lsn::Lsn;

/// Digits of a file's number at least.
const DIGITS: usize = 6;

/// A place, and how the files of its log are called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// What comes before the number: `mysql-bin`.
    pub(crate) base: String,
    pub(crate) at: Lsn,
}

impl Place {
    /// Of `offset` in `file`.
    ///
    /// # Errors
    /// The name has no number at its end.
    pub(crate) fn of(file: &str, offset: u32) -> Result<Self, String> {
        let bad = || format!("`{file}` is not the name of a binlog's file");
        let (base, number) = file.rsplit_once('.').ok_or_else(bad)?;
        let number: u32 = number.parse().map_err(|_| bad())?;
        let at = Lsn(u64::from(number) << 32 | u64::from(offset));
        Ok(Self { base: base.to_owned(), at })
    }

    /// The file of a place in this log.
    pub(crate) fn file_of(&self, at: Lsn) -> String {
        format!("{}.{:0DIGITS$}", self.base, at.0 >> 32)
    }

    /// The same place in words: `mysql-bin.000003:4711`.
    pub(crate) fn words(&self) -> String {
        format!("{}:{}", self.file_of(self.at), offset_of(self.at))
    }

    /// The same log at another place.
    pub(crate) fn with(&self, at: Lsn) -> Self {
        Self { base: self.base.clone(), at }
    }
}

/// How far into its file a place is.
pub(crate) fn offset_of(at: Lsn) -> u32 {
    at.0 as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_keeps_its_file_and_places_of_later_files_are_later() {
        let place = Place::of("shop.bin.000123", 4711).expect("it is one");
        assert_eq!(place.words(), "shop.bin.000123:4711");
        let later = Place::of("shop.bin.000124", 4).expect("it is one");
        assert!(later.at > place.at);
        let long = Place::of("b.1234567", u32::MAX).expect("it is one");
        assert_eq!((long.file_of(long.at).as_str(), offset_of(long.at)), ("b.1234567", u32::MAX));
        for name in ["", "mysql-bin", "mysql-bin.", "mysql-bin.00x", "b.99999999999"] {
            assert!(Place::of(name, 4).is_err(), "{name}");
        }
    }
}
