//! The outbox as the binlog describes it, and its rows: each column as the text that the poll reads, so that a message is
//! the same whichever way its row came.

use std::borrow::Cow;
use std::fmt::Write as _;

use bytes::Bytes;
use mysql_async::Value;
use mysql_common::binlog::events::{
    OptionalMetaExtractor, OptionalMetadataField, TableMapEvent, WriteRowsEventV1,
};
use mysql_common::binlog::value::BinlogValue;
use mysql_common::constants::ColumnType;
use mysql_common::io::ParseBuf;

use crate::mapping::Layout;
use crate::pgoutput::encode_row;

/// The character set of bytes that are no text.
const BINARY: u16 = 63;

/// A column of the table.
#[derive(Clone, Debug)]
struct Column {
    kind: ColumnType,
    /// As the binlog has it: lengths, digits.
    about: Vec<u8>,
    name: String,
    is_unsigned: bool,
    is_binary: bool,
    /// Of an enum or a set.
    words: Vec<String>,
}

/// The table, as it was when the rows that follow were written.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    columns: Vec<Column>,
    /// Where the columns of the layout are.
    places: Vec<usize>,
    payload: usize,
}

impl Table {
    /// Reads its description. Its columns must have names there.
    ///
    /// # Errors
    /// In words: it cannot be read, has no names, or lacks a column of the layout.
    pub(crate) fn read(map: &TableMapEvent<'_>, layout: &Layout) -> Result<Self, String> {
        let bad = |error: std::io::Error| format!("the binlog's description of the table: {error}");
        let extractor = OptionalMetaExtractor::new(map.iter_optional_meta()).map_err(bad)?;
        let mut names = extractor.iter_column_name();
        let (mut signs, mut charsets) = (extractor.iter_signedness(), extractor.iter_charset());
        let (mut enums, mut sets) = words(map)?;
        let mut columns = Vec::new();
        for index in 0..usize::try_from(map.columns_count()).unwrap_or(usize::MAX) {
            let unknown = || {
                format!("column {} of the table has a type that the relay does not know", index + 1)
            };
            let kind = map.get_column_type(index).ok().flatten().ok_or_else(unknown)?;
            let name = names.next().transpose().map_err(bad)?.ok_or(NO_NAMES)?;
            let is_character = kind.is_character_type();
            let charset =
                if is_character { charsets.next().transpose().map_err(bad)? } else { None };
            columns.push(Column {
                kind,
                about: map.get_column_metadata(index).ok_or_else(unknown)?.to_vec(),
                name: name.name().into_owned(),
                is_unsigned: kind.is_numeric_type() && signs.next().unwrap_or_default(),
                is_binary: charset == Some(BINARY),
                words: match kind {
                    ColumnType::MYSQL_TYPE_ENUM => enums.next().unwrap_or_default(),
                    ColumnType::MYSQL_TYPE_SET => sets.next().unwrap_or_default(),
                    _ => Vec::new(),
                },
            });
        }
        let place = |name: &String| {
            let found = columns.iter().position(|column| column.name.eq_ignore_ascii_case(name));
            found.ok_or_else(|| {
                format!(
                    "rows of {}.{} come without column `{name}`: it was dropped or renamed. Mend the mapping and start \
                     again",
                    map.database_name(),
                    map.table_name()
                )
            })
        };
        let places = layout.columns.iter().map(place).collect::<Result<_, _>>()?;
        Ok(Self { columns, places, payload: layout.payload })
    }

    /// The rows of an insert, in the form that the stream reads.
    ///
    /// # Errors
    /// In words: they cannot be read.
    pub(crate) fn rows(&self, event: &WriteRowsEventV1<'_>) -> Result<Vec<Bytes>, String> {
        let count = self.columns.len();
        let present = event.columns_after_image();
        if event.num_columns() != count as u64 || present.iter().take(count).any(|bit| !*bit) {
            return Err("rows come without all their columns: binlog_row_image is not FULL".into());
        }
        let mut rest = ParseBuf(event.rows_data());
        let mut rows = Vec::new();
        while !rest.0.is_empty() {
            rows.push(self.row(&mut rest)?);
        }
        Ok(rows)
    }

    fn row<'a>(&'a self, rest: &mut ParseBuf<'a>) -> Result<Bytes, String> {
        let short = || "a row of the binlog ends too early".to_owned();
        let nulls: &[u8] = rest.checked_eat(self.columns.len().div_ceil(8)).ok_or_else(short)?;
        let mut values: Vec<Option<Cow<'_, [u8]>>> = Vec::with_capacity(self.columns.len());
        for (index, column) in self.columns.iter().enumerate() {
            let is_null = nulls[index / 8] >> (index % 8) & 1 == 1;
            let is_payload = self.places.get(self.payload) == Some(&index);
            values.push(match is_null {
                true => None,
                false => Some(column.value(rest, is_payload)?.into()),
            });
        }
        Ok(encode_row(self.places.iter().map(|&place| values[place].as_deref())))
    }
}

/// Why a table's description cannot be used.
const NO_NAMES: &str = "rows of the outbox were written while binlog_row_metadata was not FULL, so their columns have no \
    names: `SET GLOBAL binlog_row_metadata = FULL` (and in the server's file), then `millrace relay resync --source wal` \
    reads the table again";

type Words = std::vec::IntoIter<Vec<String>>;

/// The words of enums and of sets, column by column.
fn words(map: &TableMapEvent<'_>) -> Result<(Words, Words), String> {
    let bad = |error: std::io::Error| format!("the binlog's description of the table: {error}");
    let (mut enums, mut sets) = (Vec::new(), Vec::new());
    for field in map.iter_optional_meta() {
        match field.map_err(bad)? {
            OptionalMetadataField::EnumStrValue(all) => {
                for values in all.iter_values() {
                    let values = values.map_err(bad)?;
                    enums.push(values.values().iter().map(|it| it.value().into_owned()).collect());
                }
            }
            OptionalMetadataField::SetStrValue(all) => {
                for values in all.iter_values() {
                    let values = values.map_err(bad)?;
                    sets.push(values.values().iter().map(|it| it.value().into_owned()).collect());
                }
            }
            _ => (),
        }
    }
    Ok((enums.into_iter(), sets.into_iter()))
}

impl Column {
    /// The next value, as text; the body as it is.
    fn value<'a>(&'a self, rest: &mut ParseBuf<'a>, is_payload: bool) -> Result<Vec<u8>, String> {
        let bad = |why: &dyn std::fmt::Display| {
            format!("column `{}` of a row cannot be read: {why}", self.name)
        };
        // A server writes one or the other for DATE, in the same three bytes.
        if matches!(self.kind, ColumnType::MYSQL_TYPE_DATE | ColumnType::MYSQL_TYPE_NEWDATE) {
            let packed = rest.checked_eat(3).ok_or_else(|| bad(&"it ends too early"))?;
            let packed = u32::from_le_bytes([packed[0], packed[1], packed[2], 0]);
            let (year, month, day) = (packed >> 9, packed >> 5 & 15, packed & 31);
            return Ok(format!("{year:04}-{month:02}-{day:02}").into_bytes());
        }
        let context = (self.kind, &self.about[..], self.is_unsigned, false);
        let value = rest.parse::<BinlogValue<'_>>(context).map_err(|error| bad(&error))?;
        let BinlogValue::Value(value) = value else {
            return Err(bad(&"it is JSON in MySQL's own form"));
        };
        Ok(self.text(value, is_payload))
    }

    fn text(&self, value: Value, is_payload: bool) -> Vec<u8> {
        match value {
            Value::NULL => Vec::new(),
            Value::Int(at) if self.kind == ColumnType::MYSQL_TYPE_ENUM => {
                let index = usize::try_from(at - 1).ok();
                index.and_then(|at| self.words.get(at)).cloned().unwrap_or_default().into_bytes()
            }
            Value::Int(number) => number.to_string().into_bytes(),
            Value::UInt(number) => number.to_string().into_bytes(),
            Value::Float(number) => number.to_string().into_bytes(),
            Value::Double(number) => number.to_string().into_bytes(),
            Value::Date(year, month, day, hour, minute, second, micros) => {
                let mut text =
                    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}");
                self.push_fraction(&mut text, micros);
                text.into_bytes()
            }
            Value::Time(is_negative, days, hours, minutes, seconds, micros) => {
                let sign = if is_negative { "-" } else { "" };
                let hours = days * 24 + u32::from(hours);
                let mut text = format!("{sign}{hours:02}:{minutes:02}:{seconds:02}");
                self.push_fraction(&mut text, micros);
                text.into_bytes()
            }
            Value::Bytes(bytes) => self.bytes(bytes, is_payload),
        }
    }

    fn bytes(&self, mut bytes: Vec<u8>, is_payload: bool) -> Vec<u8> {
        match self.kind {
            ColumnType::MYSQL_TYPE_TIMESTAMP2 => self.timestamp(&bytes),
            ColumnType::MYSQL_TYPE_BIT => {
                let number =
                    bytes.iter().fold(0_u64, |so_far, &byte| so_far << 8 | u64::from(byte));
                number.to_string().into_bytes()
            }
            ColumnType::MYSQL_TYPE_SET => {
                let bits = bytes.iter().rev().fold(0_u64, |all, &byte| all << 8 | u64::from(byte));
                let words = self.words.iter().enumerate().filter(|(at, _)| bits >> at & 1 == 1);
                let words: Vec<&str> = words.map(|(_, word)| word.as_str()).collect();
                words.join(",").into_bytes()
            }
            _ if self.is_binary => {
                // The binlog leaves zeroes out at the end of BINARY(n).
                if self.kind == ColumnType::MYSQL_TYPE_STRING {
                    bytes.resize(self.fixed_bytes().max(bytes.len()), 0);
                }
                if is_payload { bytes } else { crate::mysql::sql::hex(&bytes).into_bytes() }
            }
            _ => bytes,
        }
    }

    /// Bytes of a CHAR or BINARY.
    fn fixed_bytes(&self) -> usize {
        let [high, low] = [0, 1].map(|at| self.about.get(at).copied().map_or(0, usize::from));
        // Two bits of the length hide in those of the type.
        if high & 0x30 == 0x30 { low } else { low | ((high & 0x30) ^ 0x30) << 4 }
    }

    /// Digits behind the second.
    fn push_fraction(&self, text: &mut String, micros: u32) {
        let digits = self.about.first().copied().map_or(0, usize::from).min(6);
        if digits > 0 {
            let micros = format!("{micros:06}");
            let _ = write!(text, ".{}", &micros[..digits]);
        }
    }

    /// Seconds since 1970 as a date, in UTC; zero as the server has it.
    fn timestamp(&self, text: &[u8]) -> Vec<u8> {
        let text = std::str::from_utf8(text).unwrap_or_default();
        let (seconds, micros) = text.split_once('.').unwrap_or((text, "0"));
        // The library reads 32 bits with a sign; the server writes them without.
        let seconds = seconds.parse::<i32>().map_or(0, |seconds| seconds as u32);
        let micros = micros.parse().unwrap_or(0);
        let mut text = match seconds {
            0 if micros == 0 => "0000-00-00 00:00:00".to_owned(),
            seconds => utc(seconds),
        };
        self.push_fraction(&mut text, micros);
        text.into_bytes()
    }
}

/// A time of the calendar, in years that begin in March.
fn utc(seconds: u32) -> String {
    let (days, clock) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year + era * 400 + u32::from(month <= 2);
    let (hour, minute, second) = (clock / 3600, clock / 60 % 60, clock % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(kind: ColumnType, about: &[u8]) -> Column {
        let words = ["new", "sent"].map(str::to_owned).to_vec();
        let about = about.to_vec();
        Column { kind, about, name: "c".into(), is_unsigned: true, is_binary: false, words }
    }

    fn read(column: &Column, bytes: &[u8], is_payload: bool) -> String {
        let mut rest = ParseBuf(bytes);
        let value = column.value(&mut rest, is_payload).expect("it is read");
        assert!(rest.0.is_empty(), "all of it is read");
        String::from_utf8_lossy(&value).into_owned()
    }

    #[test]
    fn values_are_the_text_that_the_poll_reads() {
        use ColumnType::*;
        assert_eq!(
            read(&column(MYSQL_TYPE_LONGLONG, &[]), &[0xff; 8], false),
            u64::MAX.to_string()
        );
        assert_eq!(read(&column(MYSQL_TYPE_ENUM, &[247, 1]), &[2], false), "sent");
        assert_eq!(read(&column(MYSQL_TYPE_SET, &[248, 1]), &[3], false), "new,sent");
        assert_eq!(read(&column(MYSQL_TYPE_BIT, &[1, 1]), &[1, 2], false), "258");
        let date = (2026_u32 << 9 | 11 << 5 | 30).to_le_bytes();
        assert_eq!(read(&column(MYSQL_TYPE_DATE, &[]), &date[..3], false), "2026-11-30");
        assert_eq!(read(&column(MYSQL_TYPE_NEWDATE, &[]), &date[..3], false), "2026-11-30");
        let moment = 1_795_000_000_u32.to_be_bytes();
        assert_eq!(
            read(&column(MYSQL_TYPE_TIMESTAMP2, &[0]), &moment, false),
            "2026-11-18 11:06:40"
        );
        let late = 4_000_000_000_u32.to_be_bytes();
        assert_eq!(read(&column(MYSQL_TYPE_TIMESTAMP2, &[0]), &late, false), "2096-10-02 07:06:40");
    }

    #[test]
    fn bytes_are_hexadecimal_whole_and_raw_as_the_body() {
        // BINARY(4), of which the binlog has two bytes.
        let mut fixed = column(ColumnType::MYSQL_TYPE_STRING, &[254, 4]);
        fixed.is_binary = true;
        assert_eq!(read(&fixed, &[2, 0xab, 0x01], false), "ab010000");
        assert_eq!(read(&fixed, &[2, b'a', b'b'], true), "ab\0\0");
    }

    #[test]
    fn a_value_that_is_cut_short_is_told_with_its_column() {
        let column = column(ColumnType::MYSQL_TYPE_BLOB, &[4]);
        let told = column.value(&mut ParseBuf(&[255, 255, 255, 255, 1]), true).unwrap_err();
        assert!(told.contains("`c`"), "{told}");
    }
}
