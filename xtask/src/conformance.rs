//! `conformance`: the tests of real clients against Millrace, or against RabbitMQ as the reference.
//!
//! Every client brings its own tests, written by others for RabbitMQ: what they pass there they must
//! pass here. `conformance/expected/` holds what RabbitMQ passes, `conformance/skips/` what Millrace
//! is not asked yet and why. Each suite gets a broker with nothing in it.

mod amqp_tools;
mod answers;
mod celery;
mod go;
mod lists;
pub(crate) mod perftest;
pub(crate) mod python;
mod report;
mod rust_tests;
mod suite;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::brokers::{Broker, Kind};
use crate::check::Tally;
use crate::process::{cargo, run, target};
use crate::{Outcome, namespace};
use report::Row;
pub(crate) use suite::Suite;
use suite::{Case, Target, Verdict};

pub(crate) const SUITES: &[Suite] = &[
    python::PY_AMQP,
    python::KOMBU,
    python::RABBITPY,
    go::AMQP091_GO,
    rust_tests::LAPIN,
    rust_tests::AMQPRS,
    perftest::PERFTEST,
    amqp_tools::AMQP_TOOLS,
    celery::CELERY,
    answers::ANSWERS,
];

/// The port that some clients' tests insist on; in a namespace of its own it is free.
const PORT: u16 = 5672;

const USAGE: &str = "cargo xtask conformance [client…] [--reference [--bless]] \
                     [--url amqp://guest:guest@HOST:PORT]";

#[derive(Default)]
struct Options {
    clients: Vec<String>,
    is_reference: bool,
    /// Writes what RabbitMQ passes to `conformance/expected/`.
    is_bless: bool,
    /// A broker that runs already.
    address: Option<(String, u16)>,
}

/// `cargo xtask conformance`
pub(crate) fn command(words: &[String]) -> Outcome {
    let tally = count(words)?;
    // The process inside the namespace leaves the judgement to the one outside.
    if tally.failed == 0 || namespace::is_inside() {
        Ok(())
    } else {
        Err(format!("{} cases failed", tally.failed))
    }
}

/// The same, counted. Outside of the namespace it builds and starts itself again inside.
pub(crate) fn count(words: &[String]) -> Result<Tally, String> {
    let options = parse(words)?;
    if options.address.is_some() || namespace::is_inside() {
        return run_suites(&options);
    }
    if !options.is_reference {
        run(&mut cargo(&["build", "--quiet", "--release", "--package", "millrace"]))?;
    }
    let _ = std::fs::remove_file(report::tally_path());
    let words = words.iter().map(String::as_str);
    let outcome =
        namespace::run_inside(&["conformance"].into_iter().chain(words).collect::<Vec<_>>());
    // The one inside leaves its count; without one it did not get that far.
    report::read_tally().ok_or_else(|| outcome.err().unwrap_or("no count was left".into()))
}

fn parse(words: &[String]) -> Result<Options, String> {
    let mut options = Options::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--reference" => options.is_reference = true,
            "--bless" => options.is_bless = true,
            "--url" => options.address = Some(address(words.next().ok_or(USAGE)?)?),
            name if SUITES.iter().any(|suite| suite.name == name) => {
                options.clients.push(name.to_string());
            }
            _ => {
                let names: Vec<&str> = SUITES.iter().map(|suite| suite.name).collect();
                return Err(format!("{word}?\nusage: {USAGE}\nclients: {}", names.join(" ")));
            }
        }
    }
    match options.is_bless && !options.is_reference {
        true => Err("only the reference is blessed: --reference --bless".into()),
        false => Ok(options),
    }
}

/// Host and port of `amqp://guest:guest@HOST:PORT`.
fn address(url: &str) -> Result<(String, u16), String> {
    let rest = url.strip_prefix("amqp://").unwrap_or(url);
    let place = rest.rsplit('@').next().unwrap_or(rest).split('/').next().unwrap_or(rest);
    let (host, port) = place.rsplit_once(':').ok_or_else(|| format!("no port in {url}"))?;
    let port = port.parse().map_err(|error| format!("{url}: {error}"))?;
    Ok((host.to_string(), port))
}

fn run_suites(options: &Options) -> Result<Tally, String> {
    if namespace::is_inside() {
        namespace::bring_up_loopback()?;
    }
    let kind = if options.is_reference { Kind::RabbitMq } else { Kind::Millrace };
    let folder = target().join("conformance").join(if options.is_reference {
        "rabbitmq"
    } else {
        "millrace"
    });
    let mut rows = Vec::new();
    for suite in SUITES {
        if !options.clients.is_empty() && !options.clients.iter().any(|name| name == suite.name) {
            continue;
        }
        println!("-- {} {}", suite.name, suite.version);
        let begin = Instant::now();
        let cases = run_suite(suite, options, kind, &folder.join(suite.name));
        let row = row(suite, options, cases)?;
        println!("   {} in {:.0} s", row.summary(), begin.elapsed().as_secs_f64());
        rows.push(row);
    }
    report::write(&folder, kind.name(), &rows)?;
    println!("\n{}", report::table(kind.name(), &rows));
    let tally = report::tally(&rows);
    report::write_tally(tally)?;
    Ok(tally)
}

/// Runs one suite on a broker of its own.
fn run_suite(
    suite: &Suite,
    options: &Options,
    kind: Kind,
    folder: &Path,
) -> Result<Vec<Case>, String> {
    if !(suite.is_installed)() {
        return Err("not installed: cargo xtask setup".into());
    }
    let _ = std::fs::remove_dir_all(folder);
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let skips = if options.is_reference { BTreeMap::new() } else { lists::skips(suite.name)? };
    let skips = skips.into_keys().collect();
    let folder = PathBuf::from(folder);
    let is_bless = options.is_bless;
    if let Some((host, port)) = options.address.clone() {
        let control = Vec::new();
        if suite.wants_port_5672 && port != PORT {
            return Err("its tests have port 5672 written into them".into());
        }
        return (suite.run)(&Target { host, port, control, skips, is_bless, folder });
    }
    let broker = Broker::start(kind, &folder.join("broker"), PORT)?;
    let host = "127.0.0.1".to_string();
    let target = Target { host, port: PORT, control: broker.control(), skips, is_bless, folder };
    let cases = (suite.run)(&target);
    broker.stop()?;
    cases
}

/// Judges what a suite told against what RabbitMQ passes.
fn row(suite: &Suite, options: &Options, cases: Result<Vec<Case>, String>) -> Result<Row, String> {
    let mut row = Row::new(suite.name, suite.version);
    let cases = match cases {
        Ok(cases) => cases,
        Err(message) => {
            row.trouble = Some(message);
            return Ok(row);
        }
    };
    if options.is_bless {
        let passed = cases.iter().filter(|case| case.verdict == Verdict::Passed);
        let names = passed.map(|case| case.name.as_str());
        lists::write_expected(suite.name, Kind::RabbitMq.name(), names)?;
    }
    let (skips, expected) = match options.is_reference {
        true => (BTreeMap::new(), cases.iter().map(|case| case.name.clone()).collect()),
        false => (lists::skips(suite.name)?, lists::expected(suite.name)?),
    };
    let told: BTreeSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    for name in expected.iter().filter(|name| !told.contains(name.as_str())) {
        // A case below a skipped one (Go's subtests) is skipped with it.
        let parent = name.split('/').next().unwrap_or(name);
        match skips.get(name).or_else(|| skips.get(parent)) {
            Some(_) => {}
            None => row.failed.push((name.clone(), "was not run".into())),
        }
    }
    for (name, reason) in &skips {
        row.skipped.push((name.clone(), reason.clone()));
    }
    for Case { name, verdict, note } in cases {
        match verdict {
            Verdict::Passed => row.passed.push(name),
            Verdict::Skipped => row.skipped.push((name, "by the suite itself".into())),
            Verdict::Failed if !options.is_reference && !expected.contains(&name) => {
                row.skipped.push((name, "fails on RabbitMQ too".into()));
            }
            Verdict::Failed => row.failed.push((name, note)),
        }
    }
    Ok(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_taken_out_of_a_url() {
        assert_eq!(
            address("amqp://guest:guest@127.0.0.1:5673/%2f").unwrap(),
            ("127.0.0.1".into(), 5673)
        );
        assert!(address("amqp://localhost").is_err());
    }
}
