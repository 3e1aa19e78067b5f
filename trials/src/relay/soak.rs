//! A round by chance: writers at work while processes are killed, stopped and ended at moments that a seed
//! decides, some of them while they are held at a step.

use super::checker::Report;
use super::harm::Victim;
use super::hold::{Held, Step};
use super::plan::Plan;
use super::run::{Run, Shape};
use super::stage::Stage;
use super::truth::Source;
use crate::chaos::Failure;
use crate::workload::Chance;

/// What is done to a run at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    Kill(Victim),
    /// Held at a step, then killed, then what it waited for comes back.
    KillAt(Step, Victim),
    /// SIGTERM, and another in its place.
    Replace,
    /// SIGSTOP for as long as others work, then SIGCONT.
    Pause,
}

/// A round's harm, and how many rows are delivered before each.
pub fn harms(seed: u64, count: u64, source: Source) -> Vec<Harm> {
    let mut chance = Chance::named(seed, "harm");
    let any = |chance: &mut Chance| {
        let victim = Victim::ALL[chance.within(0, 3) as usize];
        let step = Step::ALL[chance.within(0, 4) as usize];
        match chance.within(0, 10) {
            0..3 if source == Source::Poll => Harm::KillAt(step, victim),
            0..7 => Harm::Kill(victim),
            7..9 => Harm::Replace,
            _ => Harm::Pause,
        }
    };
    (0..count).map(|_| any(&mut chance)).collect()
}

/// One round with so many relays.
///
/// # Errors
/// A process does what it must not, outside of what the report says.
pub fn round(
    stage: &mut Stage,
    shape: Shape,
    plan: Plan,
    relays: usize,
    harms: &[Harm],
) -> Result<Report, Failure> {
    let rows = u64::from(plan.writers * plan.transactions) * (plan.rows.start + plan.rows.end) / 2;
    // A part of the rows is never due.
    let step = (rows as usize * 6 / 10) / (harms.len() + 1);
    let mut run = Run::start(stage, shape, plan)?;
    for _ in 1..relays {
        run.start_relay()?;
    }
    for harm in harms {
        let enough = run.delivered() + step;
        run.until("it goes on", |run| run.delivered() >= enough || run.is_written())?;
        strike(&mut run, *harm)?;
    }
    run.finish()
}

fn strike(run: &mut Run<'_>, harm: Harm) -> Result<(), Failure> {
    match harm {
        Harm::Kill(victim) => {
            victim.kill(run)?;
            victim.revive(run)
        }
        // A relay that has nothing to do comes to no step.
        Harm::KillAt(..) if run.is_written() => Ok(()),
        Harm::KillAt(step, victim) => kill_at(run, step, victim),
        Harm::Replace => {
            let mut relay = run.relays.remove(0);
            relay.terminate(super::run::ENDS)?;
            run.start_relay()
        }
        Harm::Pause => {
            run.relays[0].pause();
            let alone = run.relays.len() == 1;
            let committed = run.committed();
            let delivered = run.delivered();
            run.until("others go on", |run| {
                let went_on = if alone { run.committed() } else { run.delivered() };
                went_on >= if alone { committed } else { delivered } + 20 || run.is_written()
            })?;
            run.relays[0].go_on();
            Ok(())
        }
    }
}

/// Kills somebody while the relay is held at a step.
///
/// # Errors
/// The relay does not come to the step although there are rows for it.
pub fn kill_at(run: &mut Run<'_>, step: Step, victim: Victim) -> Result<(), Failure> {
    let url = run.url();
    let held = match Held::hold(run.stage, &url, step) {
        Ok(held) => held,
        // There is nothing to mark any more.
        Err(_) if run.is_written() => return Ok(()),
        Err(failure) => return Err(failure),
    };
    victim.kill(run)?;
    held.let_go(run.stage)?;
    victim.revive(run)
}
