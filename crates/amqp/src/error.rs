//! What is told to a peer whose bytes are refused. Inside the crate a refusal is a small `Fault`, so that the
//! common path carries no text; it becomes an `Error` where it leaves the crate.

use std::fmt;

use crate::limits;
use crate::reply_code::ReplyCode;
use crate::shortstr::shortstr_cut;

/// A refusal, in the words of `connection.close` or `channel.close`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    pub code: ReplyCode,
    /// The explanation, without the code's name before it.
    pub text: String,
}

impl Error {
    pub fn new(code: ReplyCode, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    /// `NAME - explanation`, cut to what a short string holds (255 bytes) at a character's edge.
    pub fn reply_text(&self) -> String {
        let mut text = format!("{} - {}", self.code.name(), self.text);
        text.truncate(shortstr_cut(&text).len());
        text
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} - {}", self.code.name(), self.text)
    }
}

impl std::error::Error for Error {}

/// Why bytes are not a value. Small and `Copy`: it travels through `Result`s on the hot path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Truncated,
    Trailing,
    NotUtf8,
    NulInName,
    TableTooLong,
    TableTooDeep,
    TooManyEntries,
    CrossesParent,
    UnknownType(u8),
    PropertyFlags(u16),
}

impl Fault {
    /// The refusal, with what was being decoded. What is well formed and only more than we take is no error of
    /// syntax: it ends no more than its channel.
    #[cold]
    pub(crate) fn within(self, what: &str) -> Error {
        let code = match self {
            Self::TableTooLong | Self::TableTooDeep | Self::TooManyEntries => {
                ReplyCode::PreconditionFailed
            }
            Self::Truncated
            | Self::Trailing
            | Self::NotUtf8
            | Self::NulInName
            | Self::CrossesParent
            | Self::UnknownType(_)
            | Self::PropertyFlags(_) => ReplyCode::SyntaxError,
        };
        Error::new(code, format!("{what}: {self}"))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => write!(out, "a field runs past the end"),
            Self::Trailing => write!(out, "bytes are left over after the last field"),
            Self::NotUtf8 => write!(out, "a short string is not UTF-8"),
            Self::NulInName => write!(out, "a name holds a NUL"),
            Self::TableTooLong => {
                write!(out, "a table is longer than {} bytes", limits::TABLE_BYTES_MAX)
            }
            Self::TableTooDeep => {
                write!(out, "a table is nested deeper than {} levels", limits::TABLE_DEPTH_MAX)
            }
            Self::TooManyEntries => {
                write!(out, "a table has more than {} entries", limits::TABLE_ENTRIES_MAX)
            }
            Self::CrossesParent => write!(out, "a nested value runs past the end of its table"),
            Self::UnknownType(tag) => write!(out, "unknown field type {tag:#04x}"),
            Self::PropertyFlags(flags) => write!(out, "unknown property flags {flags:#06x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_text_is_cut_at_a_characters_edge() {
        let error = Error::new(ReplyCode::NotFound, "é".repeat(200));
        let text = error.reply_text();
        assert!(text.starts_with("NOT_FOUND - éé"));
        assert!(text.len() <= 255 && text.len() >= 254, "{}", text.len());
    }
}
