//! Plain columns for people.

use std::fmt;

/// Letters of a name that a column shows.
const LETTERS_MAX: usize = 60;

/// A name as a terminal may see it: no control characters, and not too long.
pub(super) fn shown(name: &str) -> String {
    let mut text = String::new();
    for (nth, letter) in name.chars().enumerate() {
        if nth == LETTERS_MAX {
            text.push('…');
            break;
        }
        match letter.is_control() {
            true => text.extend(letter.escape_default()),
            false => text.push(letter),
        }
    }
    text
}

/// A name that may be empty.
pub(super) fn shown_or_dash(name: &str) -> String {
    if name.is_empty() { "-".to_owned() } else { shown(name) }
}

/// What is known, or a dash.
pub(super) fn or_dash(value: Option<impl fmt::Display>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// A bound of which 0 means that there is none.
pub(super) fn limit(value: u64) -> String {
    if value == 0 { "none".to_owned() } else { value.to_string() }
}

/// Bytes in the largest unit that leaves more than a few.
pub(super) fn bytes(bytes: u64) -> String {
    match bytes {
        0..10_240 => format!("{bytes} B"),
        10_240..10_485_760 => format!("{} KiB", bytes >> 10),
        10_485_760..10_737_418_240 => format!("{} MiB", bytes >> 20),
        _ => format!("{} GiB", bytes >> 30),
    }
}

/// A time that has passed: its two largest units.
pub(super) fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// Rows under their heads, each column as wide as it must be.
pub(super) fn rows<const COLUMNS: usize>(
    out: &mut fmt::Formatter<'_>,
    heads: [&str; COLUMNS],
    rows: &[[String; COLUMNS]],
) -> fmt::Result {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([heads[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    let heads = heads.map(str::to_owned);
    for row in [&heads].into_iter().chain(rows) {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            line.push_str(&format!("{cell:<width$}  "));
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// Names and values, one per line.
pub(super) fn pairs(out: &mut fmt::Formatter<'_>, pairs: &[(&str, String)]) -> fmt::Result {
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0) + 2;
    for (name, value) in pairs {
        writeln!(out, "{name:<width$}{value}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_does_not_write_to_the_terminal() {
        assert_eq!(shown("a\u{1b}[2Jb\n"), "a\\u{1b}[2Jb\\n");
        assert_eq!(shown(&"x".repeat(200)).chars().count(), LETTERS_MAX + 1);
        assert_eq!(shown_or_dash(""), "-");
    }

    #[test]
    fn sizes_and_times_are_short() {
        let sizes = [(0, "0 B"), (20_480, "20 KiB"), (50 << 20, "50 MiB"), (20 << 30, "20 GiB")];
        sizes.into_iter().for_each(|(size, text)| assert_eq!(bytes(size), text));
        let ages = [(5, "5 s"), (65, "1 min 5 s"), (3_720, "1 h 2 min"), (180_000, "2 d 2 h")];
        ages.into_iter().for_each(|(seconds, text)| assert_eq!(age(seconds), text));
    }
}
