//! Developer commands: `cargo xtask <command>`.
//!
//! Everything here runs on a developer's machine or in CI, never in the product, so this crate reads
//! clocks, files and sockets where it needs them. It has no dependencies: the first answer comes in
//! seconds. Each command is one file, and one row of `COMMANDS`.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a developer's tool: it works with files and processes, and prints"
)]

mod apt;
mod bare;
mod bench;
mod brokers;
mod chart;
mod check;
mod conformance;
mod console;
mod r#gen;
mod json;
mod lanes;
mod logged;
mod namespace;
mod package;
mod planted;
mod process;
mod quick;
mod setup;
mod tally;
mod testing;
mod throwaway;
mod tidy;
mod trials;

use std::process::ExitCode;

/// What a command says when it is over: nothing, or what went wrong.
type Outcome = Result<(), String>;

/// Whether a machine runs this for people who will not read what it says, unless it is red.
fn is_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| ["true", "1"].contains(&value.as_str()))
}

struct Command {
    name: &'static str,
    about: &'static str,
    run: fn(&[String]) -> Outcome,
}

const COMMANDS: &[Command] = &[
    Command { name: "setup", about: "finds or installs what tests need", run: setup::run },
    Command { name: "bare", about: "[DIR] setup, twice, on a bare Debian", run: bare::run_twice },
    Command { name: "check", about: "[--quick] what a change must pass", run: check::check },
    Command { name: "ci", about: "[--built] everything .ci/run runs", run: check::ci },
    Command { name: "step", about: "NAME one of what ci runs: conformance, …", run: check::step },
    Command { name: "test", about: "[words] all tests, or those named so", run: check::test },
    Command {
        name: "conformance",
        about: "[client…] [--reference] real clients' own tests",
        run: conformance::command,
    },
    Command {
        name: "console",
        about: "the web console's checks, tests and browser",
        run: console::command_line,
    },
    Command {
        name: "bench",
        about: "[backlog|cluster|features|relay] measured beside RabbitMQ",
        run: bench::command,
    },
    Command { name: "tidy", about: "arrows, io bans, charters, leftovers", run: tidy::run },
    Command { name: "figures", about: "what can be counted of the code", run: tidy::figures::run },
    Command { name: "sim", about: "a simulated node, from a seed", run: trials::sim },
    Command {
        name: "chaos",
        about: "[kill9|…] [--nodes 3] harm to real brokers",
        run: trials::chaos,
    },
    Command {
        name: "siege",
        about: "[--only WORDS] [--quick] attacks on a node with 512 MiB",
        run: trials::siege,
    },
    Command {
        name: "differential",
        about: "[--seeds A..B] random programs on RabbitMQ and Millrace",
        run: trials::differential,
    },
    Command {
        name: "planted",
        about: "[name] bugs on purpose in the worker, each found",
        run: planted::run,
    },
    Command { name: "run", about: "a throwaway broker", run: throwaway::command },
    Command { name: "gen", about: "writes generated code", run: |_| r#gen::run(false) },
    Command { name: "settings", about: "writes the page of settings", run: r#gen::settings },
    Command {
        name: "package",
        about: "[--binary FILE] [--out DIR] [--try] a Debian package",
        run: package::command_line,
    },
    Command { name: "chart", about: "checks the Helm chart with helm", run: chart::command_line },
];

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let name = words.next().unwrap_or_default();
    let words: Vec<String> = words.collect();
    let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
        eprintln!("usage: cargo xtask <command>\n");
        for command in COMMANDS {
            eprintln!("  {:12} {}", command.name, command.about);
        }
        return ExitCode::from(2);
    };
    match (command.run)(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{name}: {message}");
            ExitCode::FAILURE
        }
    }
}
