//! F18: any fault, and sometimes a bad link beside it.

use std::time::Duration;

use super::{Bite, FAULTS, World};
use crate::chaos::Failure;

/// Percent of turns in which nothing happens.
const QUIET_PERCENT: u64 = 25;
/// Percent of faults that meet links which lose packets as well.
const LOSSY_PERCENT: u64 = 30;

pub(super) fn any(world: &mut World<'_>) -> Result<Bite, Failure> {
    if world.chance.percent(QUIET_PERCENT) {
        std::thread::sleep(world.a_while());
        return Bite::of("quiet".to_owned());
    }
    let fault = &FAULTS[world.chance.within(0, FAULTS.len() as u64) as usize];
    let is_lossy = fault.row != "F1" && fault.row != "F11" && world.chance.percent(LOSSY_PERCENT);
    if is_lossy {
        let node = world.any_node();
        let percent = world.chance.within(1, 20);
        world.cluster.net.lose(node, percent)?;
    }
    let bite = (fault.strike)(world);
    if is_lossy {
        world.cluster.net.heal()?;
    }
    let bite = bite?;
    std::thread::sleep(Duration::from_millis(world.chance.within(0, 500)));
    let beside = if is_lossy { ", packets lost beside it" } else { "" };
    Ok(Bite { seen: format!("{}: {}{beside}", fault.name, bite.seen), ..bite })
}
