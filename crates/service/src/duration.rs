//! Lengths of time as people write them.

use std::time::Duration;

/// Ten years, in milliseconds: whatever is longer is a slip.
const MS_MAX: u64 = 315_360_000_000;

/// Reads `250ms`, `5s`, `10m`, `12h`, `7d`.
///
/// # Errors
/// Another text, or more than ten years, in words.
pub fn duration(text: &str) -> Result<Duration, String> {
    let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let scale = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(format!("`{text}` is not a duration: write 250ms, 5s, 10m, 12h or 7d")),
    };
    let number: u64 = number
        .parse()
        .map_err(|_| format!("`{text}` is not a duration: write 250ms, 5s, 10m, 12h or 7d"))?;
    let ms = number.checked_mul(scale).filter(|ms| *ms <= MS_MAX);
    ms.map(Duration::from_millis).ok_or_else(|| format!("`{text}` is longer than ten years"))
}

/// As [`duration`] reads it, with the largest unit that leaves a whole number.
pub fn duration_words(time: Duration) -> String {
    let ms = time.as_millis();
    let units = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];
    let unit = units.iter().find(|(_, scale)| ms >= *scale && ms.is_multiple_of(*scale));
    unit.map_or_else(|| "0s".to_owned(), |(unit, scale)| format!("{}{unit}", ms / scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_they_are_read() {
        for text in ["0s", "250ms", "5s", "90s", "10m", "12h", "7d"] {
            assert_eq!(duration_words(duration(text).unwrap()), text);
        }
    }

    #[test]
    fn times_have_units() {
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("7d"), Ok(Duration::from_secs(604_800)));
        for bad in ["", "5", "s", "-1s", "5 s", "99999999999999999999s", "9999999d"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
