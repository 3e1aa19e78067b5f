//! The `millrace` binary.

mod cmd;
mod config;

use std::process::ExitCode;

fn main() -> ExitCode {
    cmd::run()
}
