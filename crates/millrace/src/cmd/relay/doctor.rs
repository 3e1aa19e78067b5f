//! `millrace relay doctor`: examines the outbox and its database, changes nothing, and says what to do.

use std::process::ExitCode;

use relay::admin::Grade;

use super::options::{File, Options};
use super::session::{heading, say, with_each, with_name};

/// Check the outbox and its database: what is wrong, and what you can do
#[derive(clap::Args)]
#[command(
    after_help = "Give the command the same options (or --config file) as `relay run`: the checks depend on \
         them.\nExit code 0: no check fails (with --strict: and none warns). 1: a check fails (with --strict: or \
         warns). 2: the database cannot be queried.\ndocs/relay.md has a runbook for each check."
)]
pub(crate) struct Args {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    file: File,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
    /// Exit with code 1 for a warning, too
    #[arg(long)]
    strict: bool,
}

/// Examines and tells.
pub(crate) fn run(args: Args) -> ExitCode {
    with_each(&args.options, &args.file, async |session, config, name| {
        let report = session.examine(&config).await.map_err(|error| error.to_string())?;
        if args.json {
            let line = serde_json::json!({ "grade": report.grade(), "findings": report.findings });
            say(&name.map_or_else(|| line.to_string(), |name| with_name(line.clone(), name)));
        } else {
            if let Some(name) = name {
                say(&heading(name));
            }
            say(&report.to_string());
        }
        let bad = if args.strict { Grade::Warn } else { Grade::Fail };
        Ok(u8::from(report.grade() >= bad))
    })
}
