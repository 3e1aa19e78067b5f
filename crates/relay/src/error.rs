//! What stops a relay, or a step of it, in words for its operator.

use std::fmt;

/// Why something was not done: what happened, to what, and what to do where that can be known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// A setting, a table or a privilege is wrong: trying again changes nothing.
    Setup { text: String },
    /// The database is away or refused a statement.
    Database { doing: String, text: String, is_temporary: bool },
    /// The broker is away or refused.
    Broker { doing: String, text: String },
    /// A replication slot that was used before is gone or cannot be used: changes may be missing.
    SlotLost { text: String },
}

impl Error {
    /// Whether the same may work later without anybody changing anything.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Database { is_temporary, .. } => *is_temporary,
            Self::Broker { .. } => true,
            Self::Setup { .. } | Self::SlotLost { .. } => false,
        }
    }

    /// A wrong setting.
    pub fn setup(text: impl Into<String>) -> Self {
        Self::Setup { text: text.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setup { text } | Self::SlotLost { text } => out.write_str(text),
            Self::Database { doing, text, .. } => write!(out, "database: {doing}: {text}"),
            Self::Broker { doing, text } => write!(out, "broker: {doing}: {text}"),
        }
    }
}

impl std::error::Error for Error {}
