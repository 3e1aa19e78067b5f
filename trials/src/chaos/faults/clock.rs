//! F4: wall clocks that jump. Monotonic time goes on, as it does in the kernel.

use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use super::{Bite, World};
use crate::chaos::Failure;
use crate::chaos::clocks::environment;

/// Jumps in seconds: five minutes and a year, either way.
const JUMPS: [i64; 4] = [-300, 300, -31_536_000, 31_536_000];

/// One node's clock jumps, and after a while back.
pub(super) fn jump(world: &mut World<'_>) -> Result<Bite, Failure> {
    let node = world.any_node();
    let seconds = JUMPS[world.chance.within(0, JUMPS.len() as u64) as usize];
    let file = world.clocks[node as usize - 1].clone();
    let pid = world.cluster.node(node).pid();
    let pid = pid.ok_or(Failure::Broken(format!("node {node} had ended by itself")))?;
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
    if !maps.contains("libfaketime") {
        return Err(Failure::Trial(format!("node {node} does not read the clock that is set")));
    }
    std::fs::write(&file, format!("{seconds:+}\n"))?;
    let off = seen_from(&file)?;
    std::thread::sleep(world.a_while());
    std::fs::write(&file, "+0\n")?;
    if (off - seconds).abs() > 5 {
        return Err(Failure::Trial(format!("the clock is off by {off} s, not by {seconds} s")));
    }
    Bite::of(format!("node {node}'s clock off by {off} s"))
}

/// How far a process with that clock is off.
fn seen_from(file: &Path) -> Result<i64, Failure> {
    let output = Command::new("date").arg("+%s").envs(environment(file)).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let seen: i64 = text.trim().parse().unwrap_or(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    Ok(seen - i64::try_from(now).unwrap_or(0))
}
