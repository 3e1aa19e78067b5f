//! `millrace completions` and `millrace man`: what a shell and `man` need to know, made from the commands themselves.
#![allow(clippy::disallowed_methods, reason = "a command writes files for its user")]

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap_complete::Shell;

use super::failure::Failure;

pub(crate) const COMPLETIONS_EXAMPLES: &str = "\
  millrace completions bash > ~/.local/share/bash-completion/completions/millrace
  millrace completions zsh > ~/.zfunc/_millrace        (with ~/.zfunc in fpath)
  millrace completions fish > ~/.config/fish/completions/millrace.fish";

pub(crate) const MAN_EXAMPLES: &str = "\
  millrace man queues declare | man -l -
  millrace man --dir /usr/local/share/man/man1";

/// What `millrace completions` takes.
#[derive(clap::Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// What `millrace man` takes.
#[derive(clap::Args)]
pub(crate) struct ManArgs {
    /// The command whose page is printed, such as `queues declare`; without one, that of millrace
    #[arg(value_name = "COMMAND")]
    words: Vec<String>,
    /// Write the pages of all commands into this folder
    #[arg(long, value_name = "DIR", conflicts_with = "words")]
    dir: Option<PathBuf>,
}

pub(crate) fn completions(args: &CompletionsArgs, mut cli: clap::Command) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut cli, "millrace", &mut script);
    ended(print(&script))
}

pub(crate) fn man(args: &ManArgs, mut cli: clap::Command) -> ExitCode {
    if let Some(dir) = &args.dir {
        let written =
            std::fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(cli, dir));
        return ended(written.map_err(|error| {
            Failure::Usage(format!("{}: the pages cannot be written: {error}", dir.display()))
        }));
    }
    cli.build();
    let mut page = &cli;
    for word in &args.words {
        page = match page.find_subcommand(word) {
            Some(page) => page,
            None => {
                let why = format!("there is no command `{}`", args.words.join(" "));
                return Failure::Usage(why).end();
            }
        };
    }
    let mut text = Vec::new();
    let made = clap_mangen::Man::new(page.clone()).render(&mut text);
    let made = made.map_err(|error| Failure::Usage(error.to_string()));
    ended(made.and_then(|()| print(&text)))
}

fn print(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout();
    // Whoever read it may be gone: nobody is left to tell.
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|_| Failure::Told)
}

fn ended(worked: Result<(), Failure>) -> ExitCode {
    match worked {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.end(),
    }
}
