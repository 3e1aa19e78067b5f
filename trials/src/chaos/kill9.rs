//! F2: `kill -9` in the middle of load, and in the middle of recovery.

use super::Failure;
use super::broker::Broker;
use super::trial::{Harm, Struck};
use crate::workload::Chance;
use crate::workload::io::now;

/// Kills the process. Its pages are still in the kernel: this finds what was confirmed before it
/// was written, or was not found again, not what was written and never synced.
#[derive(Debug)]
pub struct Kill;

impl Harm for Kill {
    fn name(&self) -> &'static str {
        "kill9"
    }

    fn strike(&mut self, broker: &mut Broker, _: &mut Chance) -> Result<Struck, Failure> {
        let t0 = now();
        broker.kill()?;
        Ok(Struck::dead(t0))
    }
}
