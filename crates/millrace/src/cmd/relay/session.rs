//! What commands beside `run` share: settings, one connection, what they say.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::process::ExitCode;

use relay::io::admin::Session;

use super::options::{File, Options, Wanted, config, wanted};
use super::screen;
use crate::cmd::terminal;

/// The application_name of these commands: `status` does not take them for relays.
const NAME: &str = "millrace-admin";
/// It could not be done, or not be looked at.
const EXIT_UNABLE: u8 = 2;

/// Reads the settings, connects, and does `work`.
pub(super) fn with(
    options: &Options,
    file: &File,
    work: impl AsyncFnOnce(&Session, relay::Config) -> Result<ExitCode, String>,
) -> ExitCode {
    let config = match config(&options.given, file) {
        Ok(config) => config,
        Err(problems) => return wrong(&problems),
    };
    run(async {
        let mut config = config;
        let session = Session::open(&mut config, NAME).await.map_err(|error| error.to_string())?;
        work(&session, config).await
    })
}

/// The same for each source that the file names, one after the other: `work` is given the name. The exit code is the
/// highest. One that cannot be done does not keep the others from it.
pub(super) fn with_each(
    options: &Options,
    file: &File,
    work: impl AsyncFn(&Session, relay::Config, Option<&str>) -> Result<u8, String>,
) -> ExitCode {
    let wanted = match wanted(&options.given, file) {
        Ok((wanted, _)) => wanted,
        Err(problems) => return wrong(&problems),
    };
    let once = async |config: relay::Config, name: Option<&str>| {
        let mut config = config;
        let session = Session::open(&mut config, NAME).await.map_err(|error| error.to_string())?;
        work(&session, config, name).await
    };
    run(async {
        let sources = match wanted {
            Wanted::One(config) => return once(*config, None).await.map(ExitCode::from),
            Wanted::Several(sources) => sources,
        };
        let mut worst = 0;
        for (name, config) in sources {
            let code = once(config, Some(&name)).await.unwrap_or_else(|why| {
                screen::fail(&format!("source {name}: {why}"));
                EXIT_UNABLE
            });
            worst = worst.max(code);
        }
        Ok(ExitCode::from(worst))
    })
}

fn run(work: impl Future<Output = Result<ExitCode, String>>) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return unable(&format!("cannot start: {error}")),
    };
    runtime.block_on(work).unwrap_or_else(|why| unable(&why))
}

fn wrong(problems: &[String]) -> ExitCode {
    unable(&format!("The settings are wrong:\n  {}", problems.join("\n  ")))
}

/// What stands above a source's answer.
pub(super) fn heading(name: &str) -> String {
    format!("Source {name}:")
}

/// The JSON of an answer, with the name of its source.
pub(super) fn with_name(mut answer: serde_json::Value, name: &str) -> String {
    answer["source_name"] = name.into();
    answer.to_string()
}

fn unable(why: &str) -> ExitCode {
    screen::fail(why);
    ExitCode::from(EXIT_UNABLE)
}

/// Standard output; a reader that is gone ends the command without a word.
pub(super) fn say(text: &str) {
    terminal::say(text);
}

/// What is not the answer: progress, remarks.
pub(super) fn remark(text: &str) {
    terminal::remark(text);
}

/// Asks a person. Without one: no, and what to give instead.
pub(super) fn confirmed(question: &str, flag: &str) -> bool {
    if !std::io::stdin().is_terminal() {
        remark(&format!("Nothing was changed: give {flag} to do it."));
        return false;
    }
    let _ = write!(std::io::stderr(), "{question} [y/N] ");
    let mut answer = String::new();
    let _ = std::io::stdin().lock().read_line(&mut answer);
    let is_yes = ["y", "yes"].contains(&answer.trim().to_lowercase().as_str());
    if !is_yes {
        remark("Nothing was changed.");
    }
    is_yes
}
