//! The tests, some test binaries at a time: those of the trials mostly wait for processes that were killed.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::json;
use crate::lanes::in_lanes;
use crate::logged::{Logged, Ran};
use crate::process::{cargo, command, output, run, target};
use crate::tally::Tally;

/// How many jobs run at a time: binaries of tests, which run as many tests at a time as there are processors, and steps
/// of `ci`.
const LANES: usize = 3;
/// How long a job may take. Those of `ci` take up to 10 minutes; one that takes longer hangs, and is ended so that the
/// others are heard and its name is told.
const JOB_MAX: Duration = Duration::from_secs(20 * 60);
/// The binaries that take a minute or more, in the order in which they begin, so that none of them is left alone at
/// the end. The simulator needs a processor for ten minutes; most of the others wait for databases and brokers.
const FIRST: &[&str] = &[
    "trials/trials",
    "millrace/processes",
    "trials/relay_rabbitmq",
    "trials/inbox",
    "trials/cluster_chaos",
    "trials/differential",
    "trials/relay_wal",
    "trials/relay_tls",
    "trials/relay_planted",
    "trials/work_amqp",
    "trials/work_coord",
    "trials/relay_poison",
];
/// The packages whose other tests take longest.
const FIRST_PACKAGES: &[&str] = &["trials", "millrace"];

/// A program of tests.
pub(crate) struct Binary {
    program: PathBuf,
    package: PathBuf,
}

impl Binary {
    /// From what cargo says of something that it has built.
    fn from_message(message: &str) -> Option<Binary> {
        let program = json::string(message, &["executable"])?;
        let manifest = PathBuf::from(json::string(message, &["manifest_path"])?);
        let is_bench = message.contains(r#""kind":["bench"]"#);
        let is_test = json::word(message, &["profile", "test"])? == "true";
        (is_test && !is_bench).then(|| Binary {
            program: program.into(),
            package: manifest.parent().map(PathBuf::from).unwrap_or_default(),
        })
    }

    /// As messages call it: `trials/relay_wal`.
    pub(crate) fn name(&self) -> String {
        let package = self.package.file_name().unwrap_or_default().to_string_lossy();
        let program = self.program.file_name().unwrap_or_default().to_string_lossy();
        let test = program.rsplit_once('-').map_or(&*program, |(name, _)| name);
        format!("{package}/{test}")
    }

    /// Whether it holds the unit tests of a library or program, which has the name of its package.
    pub(crate) fn is_of_units(&self) -> bool {
        let name = self.name();
        name.split_once('/').is_some_and(|(package, test)| package == test)
    }

    /// Its place in the order in which binaries begin.
    fn rank(&self) -> (usize, usize) {
        let name = self.name();
        let place = |list: &[&str], is: &dyn Fn(&str) -> bool| {
            list.iter().position(|other| is(other)).unwrap_or(list.len())
        };
        let own = place(FIRST, &|first| first == name);
        (own, place(FIRST_PACKAGES, &|first| self.package.ends_with(first)))
    }
}

/// Builds all tests of the workspace.
pub(crate) fn build() -> Result<(), String> {
    run(&mut to_build(&[]))
}

/// Builds and runs all tests of the workspace and these steps of `ci`, and prints what each says when it has ended.
pub(crate) fn run_all(steps: &[&'static str]) -> Result<Tally, String> {
    let binaries = in_order(binaries(&[])?);
    let is_long = |binary: &Binary| FIRST.contains(&&*binary.name());
    let (long, short): (Vec<Binary>, Vec<Binary>) = binaries.into_iter().partition(is_long);
    let mut jobs = vec![Job::Examples];
    jobs.extend(long.into_iter().map(Job::Binary));
    jobs.extend(steps.iter().map(|step| Job::Step(step)));
    jobs.extend(short.into_iter().map(Job::Binary));
    Ok(run_jobs(&jobs, |_| &[]))
}

/// What a lane does at a time.
enum Job {
    Binary(Binary),
    /// Those in the documentation, which have no binaries.
    Examples,
    /// One of what `ci` runs beside tests.
    Step(&'static str),
}

/// Builds the tests of the workspace that cargo selects by these words, and says where they are.
pub(crate) fn binaries(selection: &[&str]) -> Result<Vec<Binary>, String> {
    // Twice: what the compiler says of a mistake is for people, and where the binaries are is for us.
    run(&mut to_build(selection))?;
    let messages = output(to_build(selection).args(["--message-format", "json"]))?;
    Ok(messages.lines().filter_map(Binary::from_message).collect())
}

fn to_build(selection: &[&str]) -> Command {
    let mut cargo = cargo(&["test", "--workspace", "--no-run", "--quiet"]);
    if selection.is_empty() {
        cargo.arg("--all-targets");
    }
    cargo.args(selection);
    cargo
}

/// The words that a binary of this name is run with.
type Words = fn(&str) -> &'static [&'static str];

/// Runs them in lanes.
pub(crate) fn run_binaries(binaries: Vec<Binary>, words: Words) -> Tally {
    let jobs: Vec<Job> = in_order(binaries).into_iter().map(Job::Binary).collect();
    run_jobs(&jobs, words)
}

/// What takes longest comes first.
fn in_order(mut binaries: Vec<Binary>) -> Vec<Binary> {
    binaries.sort_by_key(Binary::rank);
    binaries
}

fn run_jobs(jobs: &[Job], words: Words) -> Tally {
    let mut tally = Tally::default();
    let results = in_lanes(jobs, LANES, |job| match job {
        Job::Binary(binary) => run_one(binary, words(&binary.name())),
        Job::Examples => run_examples(),
        Job::Step(name) => run_step(name),
    });
    results.into_iter().for_each(|result| tally.add(result));
    tally
}

fn run_examples() -> Tally {
    let mut examples = cargo(&["test", "--workspace", "--doc", "--no-fail-fast", "--quiet"]);
    counted("examples in the documentation", &mut examples)
}

fn run_step(name: &str) -> Tally {
    match std::env::current_exe() {
        Ok(program) => counted(name, &mut command(program, &["step", name])),
        Err(error) => {
            println!("{name}: {error}");
            Tally { failed: 1, ..Tally::default() }
        }
    }
}

fn run_one(binary: &Binary, words: &[&str]) -> Tally {
    let mut program = command(&binary.program, &["--quiet"]);
    program.args(words);
    // As cargo starts it. Trials need not build another broker: it was built with the tests.
    program.current_dir(&binary.package).env("TRIALS_MILLRACE", target().join("debug/millrace"));
    counted(&binary.name(), &mut program)
}

/// Runs it, shows what it said, and counts. One that ends badly without a count is one failure.
fn counted(name: &str, program: &mut Command) -> Tally {
    let begin = Instant::now();
    let ran = Logged::start(name, program).and_then(|logged| logged.wait(JOB_MAX));
    let seconds = begin.elapsed().as_secs_f64();
    let mut tally = Tally::default();
    match ran {
        Ok(Ran { out, err, failure }) => {
            out.lines().for_each(|line| tally.add(tally_of(line)));
            if let Some(failure) = failure {
                tally.failed = tally.failed.max(1);
                println!("{out}\n{err}");
                println!("{name}: {failure}");
            }
        }
        Err(error) => {
            tally.failed = 1;
            println!("{name}: {error}");
        }
    }
    let Tally { passed, failed, skipped } = tally;
    println!("{name}: {passed} passed, {failed} failed, {skipped} skipped in {seconds:.0} s");
    tally
}

/// Reads libtest's closing line: `test result: ok. 3 passed; 0 failed; 1 ignored; …`, or that of a step of `ci`, which
/// has no verdict in front.
fn tally_of(line: &str) -> Tally {
    let mut tally = Tally::default();
    let Some(counts) = line.strip_prefix("test result: ") else { return tally };
    let counts = counts.split_once(". ").map_or(counts, |(_, counts)| counts);
    for part in counts.split("; ") {
        let mut words = part.split(' ');
        let count = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
        match words.next() {
            Some("passed") => tally.passed = count,
            Some("failed") => tally.failed = count,
            Some("ignored") => tally.skipped = count,
            _ => {}
        }
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closing_line_of_a_test_binary_is_counted() {
        let line = "test result: FAILED. 3 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out";
        assert_eq!(tally_of(line), Tally { passed: 3, failed: 2, skipped: 1 });
        let line = "test result: 4 passed; 0 failed; 2 ignored";
        assert_eq!(tally_of(line), Tally { passed: 4, failed: 0, skipped: 2 });
        assert_eq!(tally_of("running 5 tests"), Tally::default());
    }

    #[test]
    fn binaries_are_those_of_tests_and_named_after_package_and_test() {
        let message = |is_test: bool| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/m/trials/Cargo.toml","target":
                {{"kind":["test"],"name":"relay","test":true}},"profile":{{"opt_level":"1",
                "test":{is_test}}},"executable":"/t/debug/deps/relay-1f0e"}}"#
            )
        };
        let binary = Binary::from_message(&message(true)).unwrap();
        assert_eq!(binary.name(), "trials/relay");
        assert!(!binary.is_of_units());
        assert!(Binary::from_message(&message(false)).is_none());
        let bench = message(true).replace(r#""kind":["test"]"#, r#""kind":["bench"]"#);
        assert!(Binary::from_message(&bench).is_none());
        assert!(Binary::from_message(r#"{"reason":"build-finished","success":true}"#).is_none());
    }

    #[test]
    fn what_takes_longest_begins_first() {
        let binary = |package: &str, test: &str| Binary {
            program: format!("/t/debug/deps/{test}-1f0e").into(),
            package: package.into(),
        };
        let order = in_order(vec![
            binary("/m/crates/wal", "wal"),
            binary("/m/crates/millrace", "commands"),
            binary("/m/trials", "work"),
            binary("/m/trials", "cluster_chaos"),
            binary("/m/trials", "trials"),
        ]);
        let names: Vec<String> = order.iter().map(Binary::name).collect();
        let expected = [
            "trials/trials",
            "trials/cluster_chaos",
            "trials/work",
            "millrace/commands",
            "wal/wal",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn a_binary_that_ends_badly_without_a_count_is_one_failure() {
        let tally = counted("test of false", &mut Command::new("false"));
        assert_eq!(tally, Tally { failed: 1, ..Tally::default() });
    }
}
