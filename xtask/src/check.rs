//! `check`, `test` and `ci`: what a change must pass, step by step.
//!
//! A failing step does not hide the next one: all run, and the failures are named at the end.

use std::time::Instant;

use crate::console::Pictures;
use crate::process::{build_once, cargo, run};
use crate::tally::Tally;
use crate::{Outcome, conformance, console, r#gen, package, quick, setup, testing, tidy, trials};

/// Trials as short as they still mean something; longer ones are for the night.
const SHORT_SIM: &[&str] = &["--seeds", "4"];
/// Those of `check --quick`: more of them, since no longer trials follow.
const QUICK_SIM: &[&str] = &["--seeds", "20"];
const SHORT_CHAOS: &[&str] = &["--rounds", "3", "--seconds", "1"];

/// What a step does, and what it counted.
type Work = fn() -> Result<Tally, String>;

/// What `ci` runs beside the binaries of tests, each as a program of its own: `cargo xtask step NAME`. They use what
/// the tests have built. Those that take longest come first.
const STEPS: &[(&str, Work)] = &[
    ("conformance", || conformance::count(&words(&["--tested"]))),
    ("console", || console::tried(Pictures::OfFaults)),
    ("chaos", || uncounted(trials::short_chaos(&words(SHORT_CHAOS)))),
    ("package", package::try_tested),
    ("siege", || uncounted(trials::short_siege())),
    ("sim", || uncounted(trials::short_sim(&words(SHORT_SIM)))),
];

/// Steps that have run, and what became of them.
#[derive(Default)]
struct Steps {
    tally: Tally,
    failures: Vec<String>,
}

impl Steps {
    fn step(&mut self, name: &str, work: impl FnOnce() -> Result<Tally, String>) {
        println!("== {name}");
        let begin = Instant::now();
        match work() {
            Ok(tally) => {
                self.tally.add(tally);
                if tally.failed > 0 {
                    self.failures.push(name.to_string());
                }
            }
            Err(message) => {
                println!("{message}");
                self.failures.push(name.to_string());
            }
        }
        println!("== {name}: {:.0} s\n", begin.elapsed().as_secs_f64());
    }

    /// The closing line. A step that fails without a count of its own is one failure.
    fn finish(self) -> Outcome {
        let Tally { passed, failed, skipped } = self.tally;
        if !self.failures.is_empty() {
            println!("failed: {}", self.failures.join(", "));
        }
        let failed = failed.max(self.failures.len() as u64);
        println!("{passed} passed, {failed} failed, {skipped} skipped");
        if failed == 0 { Ok(()) } else { Err("see above".into()) }
    }
}

/// `cargo xtask check [--quick]`
pub(crate) fn check(options: &[String]) -> Outcome {
    let mut steps = Steps::default();
    match options {
        [] => {
            reading_steps(&mut steps);
            clippy_step(&mut steps);
            steps.step("tests", || testing::run_all(&[]));
            steps.step("package", package::try_tested);
        }
        [option] if option == "--quick" => {
            reading_steps(&mut steps);
            clippy_step(&mut steps);
            steps.step("quick tests", quick::run);
            steps.step("sim", || uncounted(trials::short_sim(&words(QUICK_SIM))));
        }
        _ => return Err("usage: cargo xtask check [--quick]".into()),
    }
    steps.finish()
}

/// `cargo xtask ci [--built]`
pub(crate) fn ci(options: &[String]) -> Outcome {
    let mut steps = Steps::default();
    match options {
        [] => setup_and_build(&mut steps),
        [option] if option == "--built" => {}
        _ => return Err("usage: cargo xtask ci [--built]".into()),
    }
    let names: Vec<&str> = STEPS.iter().map(|(name, _)| *name).collect();
    steps.step("tests and trials", || testing::run_all(&names));
    let outcome = steps.finish();
    // Behind the closing line, where it is seen.
    print!("{}", setup::told(&setup::missing()));
    outcome
}

/// All that later steps need.
fn setup_and_build(steps: &mut Steps) {
    build_once();
    steps.step("builders", || uncounted(setup::builders()));
    // Setup waits for registries and the compiler for the processor: both at a time.
    std::thread::scope(|scope| {
        let setup = scope.spawn(|| setup::run(&[]));
        reading_steps(steps);
        // All that later steps run, so that they wait for no compiler. There is no other build than
        // that of the tests: clients and trials use it, too, since a release takes as long as they do. Clippy reads
        // all targets as they are compiled.
        steps.step("build and clippy", || uncounted(testing::build()));
        steps.step("the rest of setup", || {
            uncounted(setup.join().unwrap_or_else(|_| Err("setup panicked".into())))
        });
    });
}

/// `cargo xtask step NAME`: one of what `ci` runs, counted as a binary of tests counts.
pub(crate) fn step(words: &[String]) -> Outcome {
    let known = |word: &String| STEPS.iter().find(|(name, _)| name == word);
    let [name] = words else { return Err("usage: cargo xtask step NAME".into()) };
    let (_, work) = known(name).ok_or_else(|| format!("there is no step `{name}`"))?;
    let Tally { passed, failed, skipped } = work()?;
    println!("test result: {passed} passed; {failed} failed; {skipped} ignored");
    if failed == 0 { Ok(()) } else { Err("see above".into()) }
}

/// `cargo xtask test [words]`
pub(crate) fn test(words: &[String]) -> Outcome {
    let mut command = cargo(&["test", "--workspace", "--no-fail-fast", "--"]);
    run(command.args(words))
}

/// What only reads the sources.
fn reading_steps(steps: &mut Steps) {
    steps.step("format", || uncounted(run(&mut cargo(&["fmt", "--all", "--check"]))));
    steps.step("generated files", || uncounted(r#gen::run(true)));
    steps.step("tidy", || uncounted(tidy::run(&[])));
    // Its targets are compiled by a test of `millrace`; this is for its manifest and its lock.
    let fuzz =
        ["tree", "--manifest-path", "fuzz/Cargo.toml", "--locked", "--depth", "0", "--quiet"];
    steps.step("lock of fuzz/", || uncounted(run(&mut cargo(&fuzz))));
}

fn clippy_step(steps: &mut Steps) {
    let clippy = ["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"];
    steps.step("clippy", || uncounted(run(&mut cargo(&clippy))));
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| word.to_string()).collect()
}

fn uncounted(outcome: Outcome) -> Result<Tally, String> {
    outcome.map(|()| Tally::default())
}
