//! `conformance`: the tests of real clients against Millrace, or against RabbitMQ as the reference.
//!
//! Every client brings its own tests, written by others for RabbitMQ: what they pass there they must
//! pass here. `conformance/expected/` holds what RabbitMQ passes, `conformance/skips/` what Millrace
//! is not asked yet and why. Each suite gets a broker with nothing in it, and so does each part of a
//! suite that has parts.

mod amqp_tools;
mod answers;
mod celery;
mod certificates;
mod examples;
mod flower;
mod go;
mod keda;
mod lists;
mod own_copy;
mod parts;
pub(crate) mod perftest;
pub(crate) mod python;
mod rabbit_hole;
mod rabbitmqadmin;
mod report;
mod rust_tests;
mod suite;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::brokers::{Broker, Build, Kind};
use crate::process::target;
use crate::tally::Tally;
use crate::{Outcome, is_ci, namespace};
use parts::Part;
use report::Row;
use suite::{Case, Judge, Target, Verdict};
pub(crate) use suite::{Installer, Suite};

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
    flower::FLOWER,
    rabbitmqadmin::RABBITMQADMIN,
    rabbit_hole::RABBIT_HOLE,
    keda::KEDA,
    answers::ANSWERS,
    examples::EXAMPLES,
];

/// The port that some clients' tests insist on; in a namespace of its own it is free.
const PORT: u16 = 5672;

const NOT_INSTALLED: &str = "NOT INSTALLED: cargo xtask setup";

const USAGE: &str = "cargo xtask conformance [client…] [--reference [--bless]] [--tested] \
                     [--url amqp://guest:guest@HOST:PORT]";

#[derive(Default)]
struct Options {
    clients: Vec<String>,
    /// Of the client's suite: what the command outside asks of the one inside.
    part: Option<String>,
    is_reference: bool,
    /// Of Millrace.
    build: Build,
    /// Writes what RabbitMQ passes to `conformance/expected/`.
    is_bless: bool,
    /// A broker that runs already.
    address: Option<(String, u16)>,
}

/// `cargo xtask conformance`
pub(crate) fn command(words: &[String]) -> Outcome {
    if namespace::is_inside() {
        return inside(&parse(words)?);
    }
    match count(words)?.failed {
        0 => Ok(()),
        failed => Err(format!("{failed} cases failed")),
    }
}

/// How many cases of a suite Millrace has to pass.
pub(crate) fn case_count(suite: &Suite) -> usize {
    lists::expected(suite.name).map_or(0, |expected| expected.len())
}

/// The same, counted. Each part is run by this program started again in a network of its own.
pub(crate) fn count(words: &[String]) -> Result<Tally, String> {
    let options = parse(words)?;
    let folder = folder(&options);
    let parts = parts::wanted(&options)?;
    let told = match &options.address {
        Some(_) => parts::run_all(&parts, true, |part| run_part(part, &options, &folder)),
        None => {
            if !options.is_reference {
                options.build.make()?;
            }
            let run = |part: &Part| parts::run_inside(part, &options, &folder);
            parts::run_all(&parts, options.is_reference, run)
        }
    };
    judge(&options, told, &folder)
}

/// Runs the one part that the command outside asks for.
fn inside(options: &Options) -> Outcome {
    namespace::bring_up_loopback()?;
    let folder = folder(options);
    for part in parts::wanted(options)? {
        parts::leave(&part, &folder, &run_part(&part, options, &folder))?;
    }
    Ok(())
}

fn folder(options: &Options) -> PathBuf {
    target().join("conformance").join(kind(options).word())
}

fn kind(options: &Options) -> Kind {
    if options.is_reference { Kind::RabbitMq } else { Kind::Millrace }
}

fn parse(words: &[String]) -> Result<Options, String> {
    let mut options = Options::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--reference" => options.is_reference = true,
            "--bless" => options.is_bless = true,
            "--tested" => options.build = Build::Tested,
            "--part" => options.part = Some(words.next().ok_or(USAGE)?.clone()),
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

/// Runs a part on a broker of its own, or on the one that was named.
fn run_part(part: &Part, options: &Options, all: &Path) -> parts::Told {
    let suite = part.suite;
    if !(suite.is_installed)() {
        return Err(NOT_INSTALLED.into());
    }
    let folder = part.folder(all);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let skips = if options.is_reference { BTreeMap::new() } else { lists::skips(suite.name)? };
    let broker = match options.address {
        Some((_, port)) if suite.wants_port_5672 && port != PORT => {
            return Err("its tests have port 5672 written into them".into());
        }
        Some(_) => None,
        None => {
            let certificates = folder.join("certs");
            let tls = (suite.name == python::PY_AMQP.name).then_some(&*certificates);
            if let Some(made) = tls {
                certificates::make(made, &folder.join("certificates.txt"))?;
            }
            let (kind, build) = (kind(options), options.build);
            Some(Broker::start_build(kind, build, &folder.join("broker"), PORT, tls)?)
        }
    };
    let (host, port) = options.address.clone().unwrap_or(("127.0.0.1".to_string(), PORT));
    let cases = (suite.run)(&Target {
        host,
        port,
        control: broker.as_ref().map_or(Vec::new(), Broker::control),
        part: part.name.clone(),
        skips: skips.into_keys().collect(),
        is_bless: options.is_bless,
        folder,
    });
    broker.map_or(Ok(()), Broker::stop)?;
    cases
}

/// Holds what the suites told against what RabbitMQ passes, and says so.
fn judge(
    options: &Options,
    mut told: BTreeMap<&'static str, parts::Told>,
    folder: &Path,
) -> Result<Tally, String> {
    let mut rows = Vec::new();
    for suite in SUITES {
        if let Some(cases) = told.remove(suite.name) {
            rows.push(row(suite, options, cases, is_ci())?);
        }
    }
    let name = kind(options).name();
    report::write(folder, name, &rows)?;
    println!("\n{}", report::table(name, &rows));
    Ok(report::tally(&rows))
}

/// Judges what a suite told against what RabbitMQ passes.
fn row(
    suite: &Suite,
    options: &Options,
    cases: Result<Vec<Case>, String>,
    is_ci: bool,
) -> Result<Row, String> {
    let mut row = Row::new(suite.name, suite.version);
    let cases = match cases {
        Ok(cases) => cases,
        // By hand it is skipped, loudly; a machine that runs tests for others has what they need.
        Err(message) if message == NOT_INSTALLED && !is_ci => {
            let expected = lists::expected(suite.name).unwrap_or_default();
            row.skipped = expected.into_iter().map(|name| (name, NOT_INSTALLED.into())).collect();
            return Ok(row);
        }
        Err(message) => {
            row.trouble = Some(message);
            return Ok(row);
        }
    };
    if options.is_bless && suite.judge == Judge::RabbitMq {
        let passed = cases.iter().filter(|case| case.verdict == Verdict::Passed);
        let names = passed.map(|case| case.name.as_str());
        lists::write_expected(suite.name, Kind::RabbitMq.name(), names)?;
    }
    let all = || cases.iter().map(|case| case.name.clone()).collect();
    let (skips, expected) = match (options.is_reference, suite.judge) {
        (true, _) => (BTreeMap::new(), all()),
        (false, Judge::Ourselves) => (lists::skips(suite.name)?, all()),
        (false, Judge::RabbitMq) => (lists::skips(suite.name)?, lists::expected(suite.name)?),
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
    fn a_suite_that_is_missing_is_red_on_a_machine_for_tests_and_skipped_by_hand() {
        let tally = |is_ci| {
            let told = Err(NOT_INSTALLED.to_owned());
            let row = row(&rust_tests::LAPIN, &Options::default(), told, is_ci).unwrap();
            report::tally(&[row])
        };
        let (red, by_hand) = (tally(true), tally(false));
        assert!(red.failed > 0, "{red:?}");
        let cases = case_count(&rust_tests::LAPIN) as u64;
        assert!(cases > 0);
        assert_eq!((by_hand.failed, by_hand.skipped), (0, cases));
    }

    #[test]
    fn an_address_is_taken_out_of_a_url() {
        assert_eq!(
            address("amqp://guest:guest@127.0.0.1:5673/%2f").unwrap(),
            ("127.0.0.1".into(), 5673)
        );
        assert!(address("amqp://localhost").is_err());
    }
}
