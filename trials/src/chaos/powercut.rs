//! F5 and F6: the power goes, and what was not flushed is lost or torn.

use std::path::{Path, PathBuf};

use super::Failure;
use super::broker::Broker;
use super::flaky_disk::mounted::{Cut, MountedDisk};
use super::trial::{Harm, Struck};
use crate::checker::Rules;
use crate::workload::Chance;
use crate::workload::io::now;

/// Cuts the power under a stopped broker: it confirms nothing more, then the disk forgets.
#[derive(Debug)]
pub struct PowerCut {
    disk: MountedDisk,
}

/// Percent of cuts that tear instead of dropping everything.
const TEAR_PERCENT: u64 = 50;
/// Slowest flush, in milliseconds: a slow one is more likely to be under way when the power goes.
const FLUSH_MS_MAX: u64 = 6;

impl PowerCut {
    /// Makes the disk below `dir`.
    pub fn new(dir: &Path) -> Result<Self, Failure> {
        Ok(Self { disk: MountedDisk::create(dir)? })
    }
}

impl Harm for PowerCut {
    fn name(&self) -> &'static str {
        "powercut"
    }

    fn data(&self, _: &Path) -> PathBuf {
        self.disk.data().join("broker")
    }

    fn rules(&self, rules: Rules) -> Rules {
        Rules { sectors_min: 1, ..rules }
    }

    fn strike(&mut self, broker: &mut Broker, chance: &mut Chance) -> Result<Struck, Failure> {
        let cut = if chance.percent(TEAR_PERCENT) {
            Cut::Tear { seed: chance.number() }
        } else {
            Cut::Drop
        };
        let t0 = now();
        broker.stop()?;
        self.disk.cut(cut)?;
        broker.kill()?;
        let sectors = self.disk.power_on()?;
        self.disk.slow_flushes(chance.within(0, FLUSH_MS_MAX))?;
        Ok(Struck { sectors, ..Struck::dead(t0) })
    }
}
