//! `millrace relay install`: makes what the relay needs in the database, or says what is missing.

use std::process::ExitCode;

use relay::admin::Grade;
use relay::admin::install::{Every, Partitions, Wanted};

use super::options::{File, Options};
use super::session::{heading, remark, say, with_each};

const EXAMPLES: &str = "\
Examples:
  millrace relay install --database postgres://app@localhost/shop
      makes the table outbox_messages (or checks it, if it exists), its index and the schema millrace
  millrace relay install --partitions day --ahead 7        run this daily: it makes the missing days
  millrace relay install --order key --key-column tenant   adds a sequence column, for an exact order
  millrace relay install --source wal --print              shows the SQL and changes nothing

You can repeat the command safely: a second run changes nothing. Exit code 0: everything is in place. 1: something is
wrong that the command does not repair. 2: the database cannot be queried, or a statement failed (its transaction is
rolled back).";

/// Make the outbox table, its index and the schema millrace, or check them
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    file: File,
    /// Partition the table by time: day or month. For a new table, or one that has such partitions
    #[arg(long, value_name = "SPAN", value_parser = every)]
    partitions: Option<Every>,
    /// Number of partitions after the current one, 1 to 366 [default: 7 days, 3 months]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=366), requires = "partitions")]
    ahead: Option<u32>,
    /// Grant this role what `relay run` needs, and no more
    #[arg(long, value_name = "ROLE")]
    grant_to: Option<String>,
    /// Print the SQL and change nothing
    #[arg(long)]
    print: bool,
}

fn every(text: &str) -> Result<Every, String> {
    match text {
        "day" => Ok(Every::Day),
        "month" => Ok(Every::Month),
        _ => Err("it must be day or month".into()),
    }
}

/// Plans, and runs or prints the plan.
pub(crate) fn run(args: Args) -> ExitCode {
    let partitions = args.partitions.map(|every| {
        let usual = match every {
            Every::Day => 7,
            Every::Month => 3,
        };
        Partitions { every, ahead: args.ahead.unwrap_or(usual) }
    });
    with_each(&args.options, &args.file, async |session, config, name| {
        if let Some(name) = name {
            let mark = if args.print { "-- " } else { "" };
            say(&format!("{mark}{}", heading(name)));
        }
        let wanted = Wanted { config, partitions, grant_to: args.grant_to.clone() };
        let plan = session.plan(&wanted).await.map_err(|error| error.to_string())?;
        let is_wrong = plan.report.grade() == Grade::Fail;
        if args.print {
            say(&plan.to_string());
            plan.report.findings.iter().filter(|finding| finding.grade != Grade::Ok).for_each(
                |finding| {
                    remark(&format!("-- {}: {}", finding.grade, finding.what));
                },
            );
            return Ok(u8::from(is_wrong));
        }
        if !plan.report.findings.is_empty() {
            say(&plan.report.to_string());
        }
        if is_wrong {
            remark("Nothing was changed: repair the failures above first.");
            return Ok(1);
        }
        let told = |step: &relay::admin::install::Step| {
            let first = step.sql.lines().find(|line| !line.starts_with("--")).unwrap_or_default();
            say(&format!("{}: {first}", step.why));
        };
        let result = session.install(&plan, told).await;
        result.map_err(|error| {
            format!("{error}\nRun `millrace relay install` again to do the rest")
        })?;
        say(if plan.steps.is_empty() { "Nothing was missing." } else { "Done." });
        Ok(0)
    })
}
