//! Times, sizes and counts in words.

/// Seconds in words: `12 s`, `5 min`, `3 h`, `2 d`.
pub(crate) fn in_words(seconds: f64) -> String {
    match seconds.max(0.0) {
        s if s < 10.0 => format!("{s:.1} s"),
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.0} h", s / 3600.0),
        s => format!("{:.0} d", s / 86_400.0),
    }
}

/// Bytes in words.
pub(crate) fn size(bytes: f64) -> String {
    match bytes {
        b if b < 10_240.0 => format!("{b:.0} B"),
        b if b < 10_485_760.0 => format!("{:.0} KB", b / 1024.0),
        b if b < 10_737_418_240.0 => format!("{:.0} MB", b / 1_048_576.0),
        b => format!("{:.1} GB", b / 1_073_741_824.0),
    }
}

/// A count with commas between thousands.
pub(crate) fn grouped(count: i64) -> String {
    let digits = count.unsigned_abs().to_string();
    let mut text = if count < 0 { String::from("-") } else { String::new() };
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_grouped_by_thousands() {
        assert_eq!(
            ["0", "999", "1,000", "-12,345,678"],
            [0, 999, 1000, -12_345_678].map(grouped).each_ref().map(String::as_str)
        );
    }
}
