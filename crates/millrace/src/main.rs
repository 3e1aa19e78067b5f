//! The `millrace` binary.

mod cmd;
mod config;
mod control;

use std::process::ExitCode;

fn main() -> ExitCode {
    cmd::run()
}
