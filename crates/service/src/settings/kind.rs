//! What a setting accepts: values, their unit and their bounds.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::duration::{duration, duration_words};

/// What a setting accepts. The word of the first three stands for the value in help texts: `COLUMN`.
#[derive(Clone, Debug)]
pub enum Kind {
    /// Any text: its owner parses it, and says what is wrong.
    Any(&'static str),
    /// Any text but none.
    Text(&'static str),
    /// What its owner judges.
    Judged(&'static str, fn(&str) -> Result<(), String>),
    /// `ADDRESS:PORT`.
    Address,
    Choice(&'static [&'static str]),
    /// A whole number, and what it counts.
    Count(RangeInclusive<u64>, &'static str),
    /// A number, and what it counts.
    Rate(RangeInclusive<f64>, &'static str),
    /// A number of bytes, or text with a unit: `64MiB`, `2GB`.
    Bytes(RangeInclusive<u64>),
    /// `250ms`, `5s`, `10m`, `12h`, `7d`.
    Time(RangeInclusive<Duration>),
    /// On or off: `true` or `false`. On the command line its name alone.
    Switch,
}

impl Kind {
    /// Whether this is such a value.
    ///
    /// # Errors
    /// What it must be.
    pub fn check(&self, text: &str) -> Result<(), String> {
        let is_right = match self {
            Self::Any(_) => true,
            Self::Text(_) if text.is_empty() => return Err("it must not be empty".to_owned()),
            Self::Text(_) => true,
            Self::Judged(_, judge) => return judge(text),
            Self::Address => is_address(text),
            Self::Choice(words) => words.contains(&text),
            Self::Count(range, _) => text.parse().is_ok_and(|count| range.contains(&count)),
            Self::Rate(range, _) => text.parse().is_ok_and(|rate| range.contains(&rate)),
            Self::Bytes(range) => bytes(text).is_some_and(|count| range.contains(&count)),
            Self::Time(range) => range.contains(&duration(text)?),
            Self::Switch => matches!(text, "true" | "false"),
        };
        if is_right { Ok(()) } else { Err(format!("it must be {}", self.wanted())) }
    }

    pub(super) fn wanted(&self) -> String {
        match self {
            Self::Any(word) | Self::Text(word) | Self::Judged(word, _) => (*word).to_owned(),
            Self::Address => "ADDRESS:PORT, for instance 127.0.0.1:5672".to_owned(),
            Self::Choice(words) => one_of(words),
            Self::Count(range, "") => format!("a number from {} to {}", range.start(), range.end()),
            Self::Count(range, unit) => {
                format!("a number of {unit} from {} to {}", range.start(), range.end())
            }
            Self::Rate(..) => format!("a number from {}", self.bounds()),
            Self::Bytes(range) if *range.end() == u64::MAX => {
                format!("a number of bytes, at least {} (64MiB, 2GB)", range.start())
            }
            Self::Bytes(range) => {
                format!("a number of bytes from {} to {} (64MiB, 2GB)", range.start(), range.end())
            }
            Self::Time(_) => format!("a time of {}", self.bounds()),
            Self::Switch => "true or false".to_owned(),
        }
    }

    /// Bounds with their unit, as they would be written; or the word for what is bounded by nothing.
    pub fn bounds(&self) -> String {
        match self {
            Self::Any(_) | Self::Text(_) | Self::Judged(..) | Self::Address => self.value_name(),
            Self::Choice(words) => one_of(words),
            Self::Count(range, unit) => {
                format!("{} to {} {unit}", range.start(), range.end()).trim_end().to_owned()
            }
            Self::Rate(range, unit) => format!("{} to {} {unit}", range.start(), range.end()),
            Self::Bytes(range) => {
                let end = (*range.end() < u64::MAX).then(|| bytes_words(*range.end()));
                span(&bytes_words(*range.start()), end)
            }
            Self::Time(range) => {
                let end = (*range.end() < Duration::MAX).then(|| duration_words(*range.end()));
                span(&duration_words(*range.start()), end)
            }
            Self::Switch => "true or false".to_owned(),
        }
    }

    /// What stands for the value in a help text.
    pub fn value_name(&self) -> String {
        match self {
            Self::Any(word) | Self::Text(word) | Self::Judged(word, _) => (*word).to_owned(),
            Self::Address => "ADDR:PORT".to_owned(),
            Self::Choice(words) => words.join("|"),
            Self::Count(..) | Self::Rate(..) => "N".to_owned(),
            Self::Bytes(_) => "BYTES".to_owned(),
            Self::Time(_) => "TIME".to_owned(),
            Self::Switch => String::new(),
        }
    }
}

fn span(start: &str, end: Option<String>) -> String {
    end.map_or_else(|| format!("at least {start}"), |end| format!("{start} to {end}"))
}

fn one_of(words: &[&str]) -> String {
    match words {
        [before @ .., last] if !before.is_empty() => format!("{} or {last}", before.join(", ")),
        words => words.concat(),
    }
}

fn is_address(text: &str) -> bool {
    let parts = text.rsplit_once(':');
    parts.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}

const UNITS: [(&str, u64); 8] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1000),
    ("KB", 1000),
    ("B", 1),
];

/// Reads a number of bytes, with a unit or without.
pub(super) fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = &text[digits.len()..];
    let scale = match unit {
        "" => 1,
        unit => UNITS.iter().find(|(name, _)| *name == unit)?.1,
    };
    digits.trim().parse::<u64>().ok()?.checked_mul(scale)
}

/// With the largest unit that leaves a whole number.
fn bytes_words(count: u64) -> String {
    let unit = UNITS.iter().find(|(_, scale)| count >= *scale && count.is_multiple_of(*scale));
    unit.map_or_else(|| "0".to_owned(), |(name, scale)| format!("{}{name}", count / scale))
}
