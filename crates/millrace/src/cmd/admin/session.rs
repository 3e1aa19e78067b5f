//! One run of a command: the node that it asks, and how it prints.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use serde_json::Value;

use super::api::Api;
use super::failure::Failure;
use super::login::Options;
use crate::cmd::terminal;
use crate::table::is_hostile;

/// One run of a command.
pub(crate) struct Session {
    pub(crate) api: Api,
    pub(crate) is_json: bool,
}

impl Session {
    pub(crate) fn open(options: &Options) -> Result<Self, Failure> {
        Ok(Self { api: Api::new(options.login()?), is_json: options.json })
    }
}

/// Runs what asks a node.
pub(crate) fn with(
    options: &Options,
    work: impl AsyncFnOnce(&mut Session) -> Result<(), Failure>,
) -> ExitCode {
    let worked = Session::open(options).and_then(|mut session| block_on(work(&mut session))?);
    match worked {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.end(),
    }
}

/// Runs what waits for answers.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Usage(format!("cannot start: {error}")))?;
    Ok(runtime.block_on(work))
}

/// Prints an answer for people. What is of others in it must be clean already.
pub(crate) fn say(text: &str) -> Result<(), Failure> {
    match terminal::say(text) {
        true => Ok(()),
        // Whoever read it is gone: nobody is left to tell.
        false => Err(Failure::Told),
    }
}

/// Prints an answer for programs: one line.
pub(crate) fn say_json(value: &Value) -> Result<(), Failure> {
    say(&json_line(value))
}

/// JSON in which nothing acts on a terminal: also those characters are escaped that JSON itself allows.
pub(crate) fn json_line(value: &Value) -> String {
    let text = value.to_string();
    let mut line = String::with_capacity(text.len());
    for letter in text.chars() {
        // Outside of texts JSON has none of them, and all are in UTF-16's first plane.
        match is_hostile(letter) {
            true => line.push_str(&format!("\\u{:04x}", u32::from(letter))),
            false => line.push(letter),
        }
    }
    line
}

/// How important a word is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Good,
    Warning,
    Bad,
}

/// A word in its colour, if standard output is a terminal and nobody has set `NO_COLOR`.
pub(crate) fn painted(word: &str, tone: Tone) -> String {
    let is_unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if is_unwanted || !std::io::stdout().is_terminal() {
        return word.to_owned();
    }
    let colour = match tone {
        Tone::Good => "\x1b[32m",
        Tone::Warning => "\x1b[33m",
        Tone::Bad => "\x1b[31m",
    };
    format!("{colour}{word}\x1b[0m")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_does_not_act_on_a_terminal_and_stays_what_it_is() {
        let value = json!({ "name": "a\u{1b}[2J\u{9b}31m\u{7f}\u{202e}ü\n" });
        let line = json_line(&value);
        assert!(!line.chars().any(is_hostile), "{line:?}");
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), value);
    }
}
