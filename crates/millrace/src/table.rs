//! Plain columns for people, and texts of others as a terminal may see them.

use std::fmt;

/// Letters of a name that a column shows.
const LETTERS_MAX: usize = 60;

/// Whether a terminal may act on this character instead of showing it: a control character, or one that changes the
/// direction of writing and so the order of what is read.
pub(crate) fn is_hostile(letter: char) -> bool {
    let turns = matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    letter.is_control() || turns
}

/// A text as a terminal may see it.
pub(crate) fn clean(text: &str) -> String {
    cut(text, usize::MAX)
}

/// A name as a terminal may see it, and not too long.
pub(crate) fn shown(name: &str) -> String {
    cut(name, LETTERS_MAX)
}

fn cut(text: &str, letters_max: usize) -> String {
    let mut shown = String::new();
    for (nth, letter) in text.chars().enumerate() {
        if nth == letters_max {
            shown.push('…');
            break;
        }
        match is_hostile(letter) {
            true => shown.extend(letter.escape_default()),
            false => shown.push(letter),
        }
    }
    shown
}

/// A name that may be empty.
pub(crate) fn shown_or_dash(name: &str) -> String {
    if name.is_empty() { "-".to_owned() } else { shown(name) }
}

/// What is known, or a dash.
pub(crate) fn or_dash(value: Option<impl fmt::Display>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// A bound of which 0 means that there is none.
pub(crate) fn limit(value: u64) -> String {
    if value == 0 { "none".to_owned() } else { value.to_string() }
}

/// Bytes in the largest unit that leaves more than a few.
pub(crate) fn bytes(bytes: u64) -> String {
    match bytes {
        0..10_240 => format!("{bytes} B"),
        10_240..10_485_760 => format!("{} KiB", bytes >> 10),
        10_485_760..10_737_418_240 => format!("{} MiB", bytes >> 20),
        _ => format!("{} GiB", bytes >> 30),
    }
}

/// A time that has passed: its two largest units.
pub(crate) fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// Rows under their heads, each column as wide as it must be.
pub(crate) fn rows<const COLUMNS: usize>(
    out: &mut fmt::Formatter<'_>,
    heads: [&str; COLUMNS],
    rows: &[[String; COLUMNS]],
) -> fmt::Result {
    grid(out, &heads, rows)
}

/// The same, with as many columns as there are heads.
pub(crate) fn grid(
    out: &mut impl fmt::Write,
    heads: &[&str],
    rows: &[impl AsRef<[String]>],
) -> fmt::Result {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.as_ref().get(column));
        let cells = cells.map(|cell| cell.chars().count());
        cells.chain([heads[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let heads: Vec<String> = heads.iter().map(|head| (*head).to_owned()).collect();
    for row in [&heads[..]].into_iter().chain(rows.iter().map(AsRef::as_ref)) {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(&format!("{cell:<width$}  "));
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// Names and values, one per line.
pub(crate) fn pairs(out: &mut impl fmt::Write, pairs: &[(&str, String)]) -> fmt::Result {
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
        assert_eq!(clean("\u{9b}31m\u{202e}gpj"), "\\u{9b}31m\\u{202e}gpj");
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
