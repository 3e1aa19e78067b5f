//! The relay's publishing core between a source and a broker in memory, by chance from a seed: rows, verdicts, lost
//! connections, refusals, silences and clocks. Each seed is two worlds: in the first the source keeps what failed, as the
//! log does; in the second it is a table that is polled, and batches are given back.
//!
//! What is checked: every row is settled or told as failed (R1); what is confirmed was stored (R2); rows of one key are
//! stored in their order, and where they are not, that is told (R3); a row is stored again only after its verdict was
//! lost, or to restore an order (R4); no attempt is counted for an outage (R5); no more is in flight than was allowed,
//! and nothing of a key behind a row that failed (R6).
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    reason = "a simulation begins with a clock, and a command has a terminal"
)]

mod poll;
mod world;

use std::process::Command;

use clap::Args;
use world::World;

/// What is simulated.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// How many runs
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A bug that is planted in the core; needs a program that has bugs
    #[arg(long)]
    bug: Option<String>,
    /// Look for every planted bug
    #[arg(long)]
    planted: bool,
}

/// A bug that is planted in the core, and the promises that it breaks.
pub(crate) struct Planted {
    pub(crate) name: &'static str,
    breaks: &'static [&'static str],
}

const fn planted(name: &'static str, breaks: &'static [&'static str]) -> Planted {
    Planted { name, breaks }
}

/// All of them.
pub(crate) const PLANTED: &[Planted] = &[
    planted("relay_lost_confirmed", &["R2"]),
    planted("relay_lost_forgotten", &["R1"]),
    planted("relay_again_unordered", &["R3"]),
    planted("relay_key_not_held", &["R3", "R6"]),
    planted("relay_failed_not_barred", &["R6"]),
    planted("relay_late_overtakes", &["R3"]),
    planted("relay_release_forgets_stored", &["R4"]),
    planted("relay_overtaking_untold", &["R3"]),
    planted("relay_repeat_forgotten", &["R3"]),
    planted("relay_outage_charged", &["R5"]),
    planted("relay_order_window_ignored", &["R6"]),
    planted("relay_poison_never_alone", &["R1"]),
];

/// Seeds in which a bug has to show.
const HUNT: u64 = 400;

/// A number below a limit.
trait Below {
    fn below(&mut self, limit: u64) -> u64;
}

impl Below for client::Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.next_bits() % limit
    }
}

/// Runs seeds, or looks for bugs. True: every promise holds, or every bug is found.
///
/// # Errors
/// A process of the hunt cannot be started.
pub fn run(options: &Options) -> std::io::Result<bool> {
    if options.planted {
        return hunt();
    }
    if let Some(bug) = &options.bug
        && !::planted::choose(bug)
    {
        println!("this program has no bugs: build it with `cargo xtask sim relay --planted`");
        return Ok(false);
    }
    let start = std::time::Instant::now();
    let mut rows = 0;
    for seed in options.seed..options.seed + options.seeds {
        let (mut world, mut polled) = (World::new(seed), poll::World::new(seed));
        let told = world.run().map_err(|broken| format!("{broken}\n{world}"));
        let told = told.and_then(|count| match polled.run() {
            Ok(more) => Ok(count + more),
            Err(broken) => Err(format!("{broken}\n{polled}")),
        });
        match told {
            Ok(count) => rows += count,
            Err(broken) => {
                println!("seed {seed}: {broken}");
                return Ok(false);
            }
        }
    }
    let took = start.elapsed();
    println!(
        "{} seeds from {}, {rows} rows, {} us each: every promise holds",
        options.seeds,
        options.seed,
        took.as_micros() / u128::from(options.seeds.max(1))
    );
    Ok(true)
}

/// Every bug in a process of its own: one is chosen once in the life of a process.
fn hunt() -> std::io::Result<bool> {
    let mut all = true;
    for Planted { name, breaks } in PLANTED {
        let mut program = Command::new(std::env::current_exe()?);
        program.args(["relay-sim", "--seeds", &HUNT.to_string(), "--bug", name]);
        let output = program.output()?;
        // What breaks an assertion is said on the other stream.
        let told = [&output.stdout[..], &output.stderr[..]].concat();
        let told = String::from_utf8_lossy(&told);
        let line = told.lines().find(|line| breaks.iter().any(|words| line.contains(words)));
        all &= line.is_some();
        match line {
            Some(line) => println!("{name}: {}", line.chars().take(160).collect::<String>()),
            None => println!("{name}: NOT CAUGHT in {HUNT} seeds\n{told}"),
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_promise_holds_whatever_is_lost_refused_or_silent() {
        for seed in 1..=500 {
            let mut world = World::new(seed);
            if let Err(broken) = world.run() {
                panic!("seed {seed}: {broken}\n{world}");
            }
        }
    }
}
