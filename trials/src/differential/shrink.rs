//! Makes a program that shows a difference as short as it can be: operations are dropped one by one,
//! then options, as long as the difference stays.

use super::pool::{Bench, Traces};
use super::program::Program;
use super::runner::Timeout;

/// The shortest program found that still differs, and what both brokers showed.
pub(super) fn shrink(bench: &mut Bench, program: &Program) -> Option<(Program, Traces)> {
    let mut program = program.clone();
    let mut traces = bench.difference(&program, Timeout::USUAL)?;
    loop {
        let mut is_shorter = false;
        let mut index = program.0.len();
        while index > 0 {
            index -= 1;
            let shorter = program.without(index);
            if let Some(found) = bench.difference(&shorter, Timeout::USUAL) {
                (program, traces, is_shorter) = (shorter, found, true);
            }
        }
        for plainer in plainer(&program) {
            if let Some(found) = bench.difference(&plainer, Timeout::USUAL) {
                (program, traces, is_shorter) = (plainer, found, true);
                break;
            }
        }
        if !is_shorter {
            return Some((program, traces));
        }
    }
}

/// The program with one option less, for each of them.
fn plainer(program: &Program) -> Vec<Program> {
    let mut plainer = Vec::new();
    for (index, operation) in program.0.iter().enumerate() {
        for option in 0..operation.options.len() {
            let mut one = program.clone();
            one.0[index].options.remove(option);
            plainer.push(one);
        }
    }
    plainer
}
