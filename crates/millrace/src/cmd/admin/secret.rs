//! Passwords: where they come from, and that they are never shown.
#![allow(clippy::disallowed_methods, reason = "a command reads a file, and its user's keyboard")]

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::path::Path;

use super::failure::{Failure, remark};

/// Bytes of a password.
const PASSWORD_BYTES_MAX: u64 = 4096;

/// A password. It is shown to nobody: only [`Secret::expose`] gives it out.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) fn new(text: String) -> Self {
        Self(text)
    }

    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("(a password)")
    }
}

/// Where a password that is to be set comes from.
#[derive(clap::Args)]
pub(crate) struct NewPassword {
    /// The new password. Others on this machine can see it while the command runs: leave it out to be asked for it, or
    /// give it on standard input
    #[arg(value_name = "PASSWORD")]
    password: Option<String>,
    /// Read the new password from the first line of a file
    #[arg(long, value_name = "FILE", conflicts_with = "password")]
    new_password_file: Option<std::path::PathBuf>,
    /// Read the new password from this environment variable
    #[arg(long, value_name = "VARIABLE", conflicts_with_all = ["password", "new_password_file"])]
    new_password_env: Option<String>,
}

impl NewPassword {
    /// The password: what the command line says, else what is typed twice, else the first line of standard input.
    pub(crate) fn read(self, user: &str) -> Result<Secret, Failure> {
        if let Some(password) = self.password {
            remark(
                "millrace: warning: a password on the command line can be seen by others on this machine, and stays in \
                 the shell's history; leave it out to be asked for it, or use --new-password-file",
            );
            return not_empty(password);
        }
        if let Some(file) = self.new_password_file {
            return of_file(&file);
        }
        if let Some(variable) = self.new_password_env {
            return of_variable(&variable);
        }
        let first = ask_or_read(&format!("New password of {user}: "))?;
        if io::stdin().is_terminal() && first != ask("The same again: ")? {
            return Err(Failure::Usage("the two passwords differ: nothing was changed".to_owned()));
        }
        Ok(first)
    }
}

/// The first line of a file.
pub(crate) fn of_file(path: &Path) -> Result<Secret, Failure> {
    let name = path.display();
    let file = File::open(path);
    let file = file.map_err(|error| Failure::Usage(format!("{name} cannot be read: {error}")))?;
    of_line(io::BufReader::new(file), &name.to_string())
}

/// What an environment variable holds.
pub(crate) fn of_variable(name: &str) -> Result<Secret, Failure> {
    match std::env::var(name) {
        Ok(text) => not_empty(text),
        Err(_) => Err(Failure::Usage(format!("the variable {name} is not set, or is not UTF-8"))),
    }
}

fn of_line(input: impl io::BufRead, from: &str) -> Result<Secret, Failure> {
    let mut line = String::new();
    let read = input.take(PASSWORD_BYTES_MAX + 1).read_line(&mut line);
    read.map_err(|error| Failure::Usage(format!("no password in {from}: {error}")))?;
    if line.len() as u64 > PASSWORD_BYTES_MAX {
        let why = format!("the first line of {from} has more than {PASSWORD_BYTES_MAX} bytes");
        return Err(Failure::Usage(why));
    }
    let password = line.trim_end_matches(['\r', '\n']).to_owned();
    if password.is_empty() {
        return Err(Failure::Usage(format!("the first line of {from} holds no password")));
    }
    Ok(Secret(password))
}

fn not_empty(password: String) -> Result<Secret, Failure> {
    match password.is_empty() {
        true => Err(Failure::Usage("the password is empty".to_owned())),
        false => Ok(Secret(password)),
    }
}

/// What is typed on the terminal; without one, the first line of standard input.
pub(crate) fn ask_or_read(prompt: &str) -> Result<Secret, Failure> {
    match io::stdin().is_terminal() {
        true => ask(prompt),
        false => of_line(io::stdin().lock(), "standard input"),
    }
}

/// What is typed on the terminal, without showing it.
pub(crate) fn ask(prompt: &str) -> Result<Secret, Failure> {
    let _ = write!(io::stderr(), "{}", crate::table::clean(prompt));
    let typed = console::Term::stderr().read_secure_line();
    let typed =
        typed.map_err(|error| Failure::Usage(format!("the terminal cannot be read: {error}")))?;
    if typed.len() as u64 > PASSWORD_BYTES_MAX {
        return Err(Failure::Usage(format!(
            "the password has more than {PASSWORD_BYTES_MAX} bytes"
        )));
    }
    not_empty(typed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_the_first_line() {
        let read = |text: &str| of_line(text.as_bytes(), "a file");
        assert_eq!(read("secret\r\nmore\n").unwrap().expose(), "secret");
        assert_eq!(read("  with blanks ").unwrap().expose(), "  with blanks ");
        for wrong in ["", "\n", &"x".repeat(5000)] {
            assert!(matches!(read(wrong), Err(Failure::Usage(_))));
        }
    }

    #[test]
    fn a_password_is_not_shown() {
        assert!(!format!("{:?}", Secret::new("hunter2".to_owned())).contains("hunter2"));
    }
}
