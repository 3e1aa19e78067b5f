//! Values of the configuration file that TOML has no type for: times and secrets.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

/// A length of time: `250ms`, `5s`, `10m`, `12h`, `7d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub Duration);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        service::duration(&text).map(Self).map_err(D::Error::custom)
    }
}

/// A secret: the text itself, `file:PATH` or `env:NAME`. Never shown. Read by `io::secret` at the start and at
/// each reload.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// From the configuration file's words.
    pub fn new(words: impl Into<String>) -> Self {
        Self(words.into())
    }

    /// Where it is to be read.
    pub fn place(&self) -> Place<'_> {
        if let Some(path) = self.0.strip_prefix("file:") {
            Place::File(path)
        } else if let Some(name) = self.0.strip_prefix("env:") {
            Place::Env(name)
        } else {
            Place::Here(&self.0)
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place() {
            Place::Here(_) => out.write_str("***"),
            Place::File(path) => write!(out, "file:{path}"),
            Place::Env(name) => write!(out, "env:{name}"),
        }
    }
}

/// Where a secret is to be read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Place<'a> {
    Here(&'a str),
    File(&'a str),
    Env(&'a str),
}
