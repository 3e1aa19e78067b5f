//! `millrace work doctor`: examines a configuration, its brokers and its targets. Executes nothing.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;
use worker::config::Config;

use super::{File, say, unable, wait};

/// How long one look may take.
const LOOK_MAX: Duration = Duration::from_secs(15);

/// Check a configuration, its brokers and its targets: what is wrong, and what you can do
#[derive(clap::Args)]
#[command(
    after_help = "The command looks at each source, connects to each target and checks whether the target accepts the \
                  credentials. \
                  It executes no job.\n\
                  Exit code 0: every check passed. 1: a check failed. 2: the settings are wrong."
)]
pub(super) struct Args {
    #[command(flatten)]
    file: File,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
}

/// One thing that was looked at.
struct Finding {
    what: String,
    result: Result<String, String>,
    advice: &'static str,
}

/// Examines and tells.
pub(super) fn run(args: &Args) -> ExitCode {
    let config = match worker::io::config::read(&args.file.config) {
        Ok(config) => config,
        Err(error) => return unable(&format!("the settings are wrong:\n{error}")),
    };
    let findings = match wait(async { Ok(examine(&config).await) }) {
        Ok(findings) => findings,
        Err(why) => return unable(&why),
    };
    let is_well = findings.iter().all(|finding| finding.result.is_ok());
    match args.json {
        true => say(&as_json(&findings, is_well)),
        false => say(&as_text(&findings)),
    }
    if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn examine(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, kind) in &config.sources {
        let result = match tokio::time::timeout(LOOK_MAX, worker::io::config::look(kind)).await {
            Ok(result) => result.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no answer within {LOOK_MAX:?}")),
        };
        let advice = "check that the broker runs, that the url is right, and that the queue exists (declare = true \
             makes it)";
        findings.push(Finding { what: format!("source.{name} ({})", kind.word()), result, advice });
    }
    for (name, kind) in &config.targets {
        let check = async {
            let target = worker::io::config::target(kind)?;
            target.check().await
        };
        let result = match tokio::time::timeout(LOOK_MAX, check).await {
            Ok(result) => result.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no answer within {LOOK_MAX:?}")),
        };
        let advice = "check the address and the credentials of this target";
        findings.push(Finding { what: format!("target.{name} ({})", kind.word()), result, advice });
    }
    for name in config.sources.keys() {
        if !config.pool.pipelines.iter().any(|pipeline| pipeline.source == *name) {
            let result = Ok("no pipeline takes from it".to_owned());
            findings.push(Finding { what: format!("source.{name}"), result, advice: "" });
        }
    }
    findings
}

fn as_text(findings: &[Finding]) -> String {
    let mut text = String::new();
    for Finding { what, result, advice } in findings {
        // Writing to a String cannot fail.
        let _ = match result {
            Ok(told) => writeln!(text, "ok    {what}: {told}"),
            Err(why) => writeln!(text, "FAIL  {what}: {why}\n      {advice}"),
        };
    }
    text
}

fn as_json(findings: &[Finding], is_well: bool) -> String {
    let list: Vec<serde_json::Value> = findings
        .iter()
        .map(|Finding { what, result, advice }| match result {
            Ok(told) => json!({ "what": what, "grade": "ok", "told": told }),
            Err(why) => json!({ "what": what, "grade": "fail", "told": why, "advice": advice }),
        })
        .collect();
    json!({ "grade": if is_well { "ok" } else { "fail" }, "findings": list }).to_string()
}
