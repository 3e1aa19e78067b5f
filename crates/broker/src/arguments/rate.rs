//! Rates as clients and operators write them: `500/s`, `1000/m`, `10/h`, and for bytes `2MiB/s`.

use machine::Rate;
use machine::limits::{BURST_MAX, RATE_COUNT_MAX};

/// Units of bytes, as the settings of a node know them.
const BYTES: &[(&str, u64)] = &[
    ("B", 1),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

const TIMES: &[(&str, u64)] = &[("s", 1_000), ("m", 60_000), ("h", 3_600_000)];

/// A whole number of messages above 0, and the time that they have: a second, a minute or an hour.
pub fn messages(text: &str) -> Option<Rate> {
    let (count, per_ms) = halves(text)?;
    Rate::new(number(count)?, per_ms)
}

/// The same of bytes, whose number may have a unit.
pub fn bytes(text: &str) -> Option<Rate> {
    let (count, per_ms) = halves(text)?;
    let digits = count.find(|c: char| !c.is_ascii_digit()).unwrap_or(count.len());
    let (digits, unit) = count.split_at(digits);
    let factor = match unit.trim_start() {
        "" => 1,
        unit => BYTES.iter().find(|(name, _)| *name == unit)?.1,
    };
    Rate::new(number(digits)?.checked_mul(factor)?, per_ms)
}

/// As it is written: the time is a second, a minute or an hour.
pub fn shown(rate: Rate) -> String {
    let unit = TIMES.iter().find(|(_, ms)| *ms == rate.per_ms()).map(|(name, _)| *name);
    match unit {
        Some(unit) => format!("{}/{unit}", rate.count()),
        None => format!("{} in {} ms", rate.count(), rate.per_ms()),
    }
}

/// A number of messages that may go at once.
pub(crate) fn is_burst(count: u64) -> bool {
    (1..=BURST_MAX).contains(&count)
}

fn halves(text: &str) -> Option<(&str, u64)> {
    let (count, time) = text.split_once('/')?;
    let (_, per_ms) = TIMES.iter().find(|(name, _)| *name == time.trim())?;
    Some((count.trim(), *per_ms))
}

fn number(digits: &str) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    digits.parse().ok().filter(|count| is_number && *count <= RATE_COUNT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_number_above_0_and_a_time() {
        let rate = |count, per_ms| Rate::new(count, per_ms);
        assert_eq!(messages("500/s"), rate(500, 1_000));
        assert_eq!(messages("1000/m"), rate(1_000, 60_000));
        assert_eq!(messages(" 10 / h "), rate(10, 3_600_000));
        assert_eq!(messages("1000000000000/s"), rate(1_000_000_000_000, 1_000));
        for wrong in [
            "",
            "500",
            "0/s",
            "-1/s",
            "+5/s",
            "1.5/s",
            "5/d",
            "5/",
            "/s",
            "5/s/s",
            "1000000000001/s",
        ] {
            assert_eq!(messages(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn bytes_may_have_the_units_that_settings_have() {
        let rate = |count| Rate::new(count, 1_000);
        for (text, count) in
            [("7/s", 7), ("2MiB/s", 2 << 20), ("5 kB/s", 5_000), ("1GB/s", 1_000_000_000)]
        {
            assert_eq!(bytes(text), rate(count), "{text}");
        }
        for wrong in ["MiB/s", "5X/s", "0kB/s", "1.5MB/s", "999999999999GiB/s"] {
            assert_eq!(bytes(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_rate_is_shown_as_it_was_written() {
        for text in ["500/s", "1000/m", "10/h"] {
            assert_eq!(shown(messages(text).unwrap()), text);
        }
    }
}
