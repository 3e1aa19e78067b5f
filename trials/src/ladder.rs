//! System 1's outbox processor, re-made as it grew: what a relay is measured against.
//!
//! The table, the statements and the order of the steps are those of the published system: it began with
//! one row after the other, and ended with five workers, batched updates and batch publishing. Each step
//! can be off or on. Its client of AMQP is lapin, and nothing of `crates/relay` is in it.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    reason = "a measurement has clocks, files and a terminal; everything of it is below here"
)]

pub mod processor;
pub mod queue;
pub mod report;
pub mod rig;
pub mod steps;
pub mod table;
pub mod usage;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::chaos::Failure;
use report::{Report, Row};
use rig::{Rig, Site};
use steps::{Index, Steps};

/// What is measured, and how long.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Rows of the backlog
    #[arg(long, default_value_t = 300_000)]
    rows: u64,
    /// A form that has not drained the backlog after this long stops between two batches
    #[arg(long, default_value_t = 6.0)]
    seconds: f64,
    /// Also the final form with each of its steps off
    #[arg(long)]
    each_off: bool,
    /// Only forms whose names hold this
    #[arg(long, default_value = "")]
    only: String,
    /// A tenth of the rows, two seconds: shows that it works, not how well
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    site: Site,
    /// Write all figures to this file, too
    #[arg(long)]
    json: Option<PathBuf>,
    /// Write the table to this file, too
    #[arg(long)]
    markdown: Option<PathBuf>,
}

/// One form of the processor.
#[derive(Clone, Debug, PartialEq)]
pub struct Form {
    pub name: String,
    pub steps: Steps,
}

/// Measures every form on every broker. True: all of them published what they marked, and no more.
pub fn run(options: &Options) -> Result<bool, Failure> {
    let options = options.shortened();
    let mut report = Report::new(options.rows);
    for kind in options.site.kinds() {
        let rig = Rig::start(&options.site, kind)?;
        for form in options.forms() {
            let row = measure(&rig, &form, options.rows, options.limit())?;
            println!("{row}");
            report.add(row);
        }
        rig.stop()?;
    }
    report.finish(options.markdown.as_deref(), options.json.as_deref())?;
    Ok(report.is_right())
}

/// Drains a fresh backlog with one form.
pub fn measure(rig: &Rig, form: &Form, rows: u64, limit: Duration) -> Result<Row, Failure> {
    rig.block_on(async {
        rig.queue().clear().await?;
        let table = rig.table();
        table.make(form.steps.index).await?;
        table.fill(rows).await?;
        table.settle().await?;
        let meter = rig.meter(std::process::id()).await?;
        let drained = processor::drain(rig, form.steps, limit).await?;
        let spent = meter.stop().await?;
        let mut row = Row::new(rig.kind(), &form.name, drained.messages, drained.elapsed);
        row.times = Some(drained.times.per_thousand());
        row.spend(&spent);
        row.problems = judge(rig, rows, drained.messages).await?;
        Ok(row)
    })
}

/// How long messages may still be under way that nobody confirms.
const ARRIVAL: Duration = Duration::from_secs(30);

/// What is wrong with the state that the drain left.
async fn judge(rig: &Rig, rows: u64, messages: u64) -> Result<Vec<String>, Failure> {
    let mut problems = Vec::new();
    let queued = rig.queue().wait(messages, ARRIVAL).await?;
    if queued != messages {
        problems.push(format!("{messages} rows marked, but {queued} messages in the queue"));
    }
    let left = rig.table().unprocessed().await?;
    if left + messages != rows {
        problems.push(format!("{messages} of {rows} rows marked, but {left} are left"));
    }
    Ok(problems)
}

impl Options {
    fn shortened(&self) -> Self {
        if !self.quick {
            return self.clone();
        }
        Self { rows: self.rows / 10, seconds: self.seconds.min(2.0), ..self.clone() }
    }

    fn limit(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    fn forms(&self) -> Vec<Form> {
        let mut forms = ladder();
        if self.each_off {
            forms.extend(each_off());
        }
        forms.retain(|form| form.name.contains(&self.only));
        forms
    }
}

/// How system 1 starts.
pub fn start() -> Form {
    Form { name: "start: one by one".into(), steps: Steps::default() }
}

/// How it ends: every step on, with confirms.
pub fn last() -> Form {
    Form { name: "final form".into(), steps: Steps::FINAL }
}

/// From start to final form, each form with one step more than the one before.
fn ladder() -> Vec<Form> {
    let mut steps = Steps::default();
    let mut forms = vec![start()];
    let mut add = |name: &str, steps| forms.push(Form { name: name.into(), steps });
    add("+ index, partial (not its own)", Steps { index: Index::Partial, ..steps });
    steps.index = Index::Covering;
    add("+ index, covering", steps);
    steps.publishes_together = true;
    add("+ publish concurrently", steps);
    steps.updates_together = true;
    add("+ one batched update", steps);
    steps.workers = Steps::FINAL.workers;
    add("+ 5 workers, SKIP LOCKED", steps);
    steps.has_own_channel = true;
    assert_eq!(steps, Steps::FINAL, "the ladder ends with every step");
    add("+ batch publish = final form", steps);
    add("final form, partial index", Steps { index: Index::Partial, ..steps });
    add("final form, confirms off", Steps { confirms: false, ..steps });
    forms
}

/// The final form with one step off at a time.
fn each_off() -> Vec<Form> {
    let all = Steps::FINAL;
    let without = |name: &str, steps| Form { name: format!("final form without {name}"), steps };
    vec![
        without("index", Steps { index: Index::None, ..all }),
        without("concurrent publish", Steps { publishes_together: false, ..all }),
        without("batched update", Steps { updates_together: false, ..all }),
        without("parallel workers", Steps { workers: 1, ..all }),
        without("batch publish", Steps { has_own_channel: false, ..all }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ladder_begins_at_the_start_and_reaches_the_final_form() {
        let forms = ladder();
        assert_eq!(forms[0], start());
        assert!(forms.iter().any(|form| form.steps == last().steps));
    }

    #[test]
    fn each_form_without_a_step_differs_from_the_final_one_and_all_others() {
        let forms = each_off();
        for (index, form) in forms.iter().enumerate() {
            assert_ne!(form.steps, Steps::FINAL, "{}", form.name);
            assert!(forms[..index].iter().all(|other| other.steps != form.steps));
        }
    }
}
