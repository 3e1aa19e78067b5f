//! What stops a worker, or a part of it, in words for its operator.

use std::fmt;

/// Why something was not done: what happened, to what, and what to do where that can be known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// A setting is wrong: trying again changes nothing.
    Setup { text: String },
    /// A broker, a provider or a file is away or refuses for now: the same may work later.
    Away { doing: String, text: String },
}

impl Error {
    /// A wrong setting.
    pub fn setup(text: impl Into<String>) -> Self {
        Self::Setup { text: text.into() }
    }

    /// Something that may work later.
    pub fn away(doing: impl Into<String>, text: impl fmt::Display) -> Self {
        Self::Away { doing: doing.into(), text: text.to_string() }
    }

    /// Whether the same may work later without anybody changing anything.
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Away { .. })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setup { text } => out.write_str(text),
            Self::Away { doing, text } => write!(out, "{doing}: {text}"),
        }
    }
}

impl std::error::Error for Error {}
