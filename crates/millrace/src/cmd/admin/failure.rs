//! Why a command did not do what it was told, and its exit code.

use std::fmt;
use std::process::ExitCode;

use crate::cmd::terminal;
use crate::table::is_hostile;

/// Why a command did not do what it was told. Each kind has an exit code of its own: `docs/operating/commands.md`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The node refuses it, or there is no such thing.
    Refused(String),
    /// The command line, a variable or a file of the command is wrong.
    Usage(String),
    /// No node answers, or what answers is none.
    Away(String),
    /// The login is wrong, or its user may not do this.
    Login(String),
    /// What is wrong was the answer, and is printed already.
    Told,
}

impl Failure {
    /// The exit code of the command.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Refused(_) | Self::Told => 1,
            Self::Usage(_) => 2,
            Self::Away(_) => 3,
            Self::Login(_) => 4,
        }
    }

    /// Says it on standard error.
    pub(crate) fn end(&self) -> ExitCode {
        if *self != Self::Told {
            remark(&format!("millrace: {self}"));
        }
        ExitCode::from(self.code())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(why) | Self::Usage(why) | Self::Away(why) | Self::Login(why) => {
                out.write_str(why)
            }
            Self::Told => out.write_str("see above"),
        }
    }
}

/// A line on standard error. Names and reasons in it may be of others: nothing of them acts on the terminal.
pub(crate) fn remark(text: &str) {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        match is_hostile(letter) && letter != '\n' {
            true => shown.extend(letter.escape_default()),
            false => shown.push(letter),
        }
    }
    terminal::remark(&shown);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_exit_code() {
        let why = || "why".to_owned();
        let kinds = [
            (Failure::Refused(why()), 1),
            (Failure::Told, 1),
            (Failure::Usage(why()), 2),
            (Failure::Away(why()), 3),
            (Failure::Login(why()), 4),
        ];
        kinds.into_iter().for_each(|(kind, code)| assert_eq!(kind.code(), code, "{kind:?}"));
    }
}
