//! Ages as RabbitMQ writes them for streams: `7D`.

/// Milliseconds of a number above 0 and a unit: years, months of 30 days, days, hours, minutes or seconds. What is too
/// much for a number is for ever.
pub(crate) fn age_ms(text: &str) -> Option<u64> {
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let seconds: u64 = match unit {
        "Y" => 365 * 24 * 60 * 60,
        "M" => 30 * 24 * 60 * 60,
        "D" => 24 * 60 * 60,
        "h" => 60 * 60,
        "m" => 60,
        "s" => 1,
        _ => return None,
    };
    let is_positive = digits.contains(|digit| digit != '0');
    is_positive.then(|| {
        let number: u64 = digits.parse().unwrap_or(u64::MAX);
        number.saturating_mul(seconds).saturating_mul(1000)
    })
}

#[cfg(test)]
mod tests {
    use super::age_ms;

    #[test]
    fn an_age_is_a_number_above_0_and_a_unit() {
        assert_eq!(age_ms("7D"), Some(7 * 86_400_000));
        assert_eq!(age_ms("01h"), Some(3_600_000));
        assert_eq!(age_ms("1M"), Some(30 * 86_400_000));
        assert_eq!(age_ms("99999999999999999999Y"), Some(u64::MAX));
        for wrong in ["", "10", "7d", "1w", "0s", "000s", "1.5h", "1D2h", "-1D", "xx", "h"] {
            assert_eq!(age_ms(wrong), None, "{wrong}");
        }
    }
}
