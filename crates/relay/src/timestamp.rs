//! PostgreSQL's ISO timestamps to AMQP's seconds since 1970.

/// `2026-11-21 13:00:05.123456+00`, or seconds since 1970 as a number. None: anything else, and times before 1970.
///
/// Sessions of the relay set `DateStyle` to ISO and `TimeZone` to UTC; a timestamp without a zone counts as UTC.
pub(crate) fn seconds(text: &str) -> Option<u64> {
    if let Ok(number) = text.parse::<f64>() {
        return (0.0..9e15).contains(&number).then_some(number as u64);
    }
    let (date, time) = text.split_once([' ', 'T'])?;
    let mut date = date.splitn(3, '-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let zone_at = time.find(['+', '-', 'Z']).unwrap_or(time.len());
    let (clock, zone) = time.split_at(zone_at);
    let clock = clock.split('.').next()?;
    let mut clock = clock.splitn(3, ':').map(|part| part.parse::<i64>().ok());
    let (hour, minute) = (clock.next()??, clock.next()??);
    let second = clock.next().unwrap_or(Some(0))?;
    let in_range = (1970..=294_276).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && (0..24).contains(&hour)
        && (0..60).contains(&minute)
        && (0..=60).contains(&second);
    let local = days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    in_range.then(|| u64::try_from(local - zone_seconds(zone)?).ok()).flatten()
}

/// The same timestamp as RFC 3339 has it. None: a number, or no time.
pub(crate) fn rfc3339(text: &str) -> Option<String> {
    seconds(text)?;
    let (date, time) = text.split_once([' ', 'T'])?;
    let zone_at = time.find(['+', '-', 'Z']).unwrap_or(time.len());
    let (clock, zone) = time.split_at(zone_at);
    let zone = match zone {
        "" | "Z" | "+00" | "+00:00" => "Z".to_owned(),
        short if short.len() == 3 => format!("{short}:00"),
        long => long.to_owned(),
    };
    Some(format!("{date}T{clock}{zone}"))
}

fn zone_seconds(zone: &str) -> Option<i64> {
    let (sign, rest) = match zone.split_at_checked(1) {
        None | Some(("Z", "")) => return Some(0),
        Some(("+", rest)) => (1, rest),
        Some(("-", rest)) => (-1, rest),
        Some(_) => return None,
    };
    let mut parts = rest.splitn(3, ':').map(|part| part.parse::<i64>().ok());
    let hours = parts.next()??;
    let minutes = parts.next().unwrap_or(Some(0))?;
    let seconds = parts.next().unwrap_or(Some(0))?;
    Some(sign * (hours * 3600 + minutes * 60 + seconds))
}

/// Days from 1970-01-01 in the Gregorian calendar, counted in years that begin in March.
pub(crate) fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let from_march = (month + 9) % 12;
    365 * year + year / 4 - year / 100 + year / 400 + (153 * from_march + 2) / 5 + day - 719_469
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_of_postgresql_are_seconds_since_1970() {
        assert_eq!(seconds("1970-01-01 00:00:00+00"), Some(0));
        assert_eq!(seconds("2026-11-21 13:00:05.123456+00"), Some(1_795_266_005));
        assert_eq!(seconds("2026-11-21 15:00:05+02"), Some(1_795_266_005));
        assert_eq!(seconds("2026-11-21 18:30:05+05:30"), Some(1_795_266_005));
        assert_eq!(seconds("2000-02-29T12:00:00Z"), Some(951_825_600));
        assert_eq!(seconds("2024-12-31 23:59:59"), Some(1_735_689_599));
        assert_eq!(seconds("1735689599.7"), Some(1_735_689_599));
    }

    #[test]
    fn timestamps_of_postgresql_are_those_of_rfc_3339() {
        for (text, same) in [
            ("2026-11-21 13:00:05.123456+00", Some("2026-11-21T13:00:05.123456Z")),
            ("2026-11-21 13:00:05", Some("2026-11-21T13:00:05Z")),
            ("2026-11-21 15:00:05+02", Some("2026-11-21T15:00:05+02:00")),
            ("2026-11-21 18:30:05+05:30", Some("2026-11-21T18:30:05+05:30")),
            ("1735689599", None),
            ("infinity", None),
        ] {
            assert_eq!(rfc3339(text).as_deref(), same, "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_none() {
        for text in
            ["", "infinity", "-infinity", "2026-13-01 00:00:00", "1969-12-31 23:59:59+00", "x"]
        {
            assert_eq!(seconds(text), None, "{text}");
        }
    }
}
