//! `millrace relay doctor`: examines the outbox and its database, changes nothing, and says what to do.

use std::process::ExitCode;

use relay::admin::Grade;

use super::options::{File, Options};
use super::session::{say, with};

/// Examine the outbox and its database: what is wrong, and what to do about it
#[derive(clap::Args)]
#[command(
    after_help = "Give it the options (or the --config file) of `relay run`: what is right depends on them.\n\
                  Exit code 0: nothing fails (with --strict: and nothing warns). 1: something does. 2: the database \
                  cannot be asked.\ndocs/relay.md has a runbook for each check."
)]
pub(crate) struct Args {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    file: File,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
    /// Exit with 1 for a warning, too
    #[arg(long)]
    strict: bool,
}

/// Examines and tells.
pub(crate) fn run(args: Args) -> ExitCode {
    with(&args.options, &args.file, async |client, config| {
        let report =
            relay::io::admin::examine(client, &config).await.map_err(|error| error.to_string())?;
        if args.json {
            let line = serde_json::json!({ "grade": report.grade(), "findings": report.findings });
            say(&line.to_string());
        } else {
            say(&report.to_string());
        }
        let bad = if args.strict { Grade::Warn } else { Grade::Fail };
        Ok(if report.grade() >= bad { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    })
}
