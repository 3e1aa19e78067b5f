//! Which groups have elections while a trial runs. On a machine that stands still for seconds there are some that no harm
//! of the trial explains, and the checker must know of them.
//!
//! Every node is asked over and over for the terms that it knows. Between the last time when all were asked and none knew
//! of a term, and the first when one did, the group had an election.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::status::{self, Status};
use crate::history::{Nanos, What};
use crate::workload::io::{Recorder, now};

/// The name in histories.
const NAME: &str = "elections";
/// Between two rounds of questions.
const REST: Duration = Duration::from_secs(1);
/// How long a node may take for an answer. One that stands still knows of no new term.
const ANSWER: Duration = Duration::from_secs(1);

/// Somebody who asks. Dropping it ends that.
#[derive(Debug)]
pub struct Elections {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What is known of the groups.
#[derive(Debug, Default)]
struct Terms {
    /// The highest term of each.
    known: BTreeMap<u32, u64>,
    /// When all nodes were asked last, and all answered.
    asked: Nanos,
}

impl Elections {
    /// Begins to ask the nodes with these data directories.
    pub fn watch(directories: Vec<PathBuf>, recorder: Recorder) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let ask = move || ask_until(&told, &directories, &recorder);
        let thread = std::thread::Builder::new().name(NAME.to_owned()).spawn(ask)?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

fn ask_until(stop: &AtomicBool, directories: &[PathBuf], recorder: &Recorder) {
    let mut terms = Terms { asked: now(), ..Terms::default() };
    while !stop.load(Ordering::Relaxed) {
        let asked = now();
        let answers = directories.iter().map(|data| status::ask_within(data, ANSWER).ok());
        let answers: Vec<_> = answers.collect();
        for election in terms.after(asked, now(), &answers) {
            recorder.saw(NAME, election);
        }
        std::thread::sleep(REST);
    }
}

impl Drop for Elections {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // One that panicked has said so, and what it did not see makes the checker stricter.
            let _ = thread.join();
        }
    }
}

impl Terms {
    /// Elections that were seen when the nodes were asked between these times.
    fn after(&mut self, asked: Nanos, answered: Nanos, answers: &[Option<Status>]) -> Vec<What> {
        let mut elections = Vec::new();
        for view in answers.iter().flatten() {
            for group in &view.groups {
                let known = self.known.entry(group.group).or_insert(group.term);
                if group.term <= *known {
                    continue;
                }
                *known = group.term;
                let of_group = view.queues.iter().filter(|queue| queue.group == group.group);
                let q = of_group.map(|queue| queue.name.clone()).collect();
                elections.push(What::Election { q, t0: self.asked, t1: answered });
            }
        }
        if answers.iter().all(Option::is_some) {
            self.asked = asked;
        }
        elections
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(term: u64) -> Option<Status> {
        let text = format!(
            r#"{{"node":1,"groups":[{{"group":3,"leader":2,"term":{term},"applied":7}}],
                "queues":[{{"name":"q","group":3}},{{"name":"other","group":4}}]}}"#
        );
        Some(serde_json::from_str(&text).unwrap())
    }

    fn election(t0: Nanos, t1: Nanos) -> What {
        What::Election { q: vec!["q".into()], t0, t1 }
    }

    #[test]
    fn an_election_was_between_two_rounds_of_questions() {
        let mut terms = Terms::default();
        assert_eq!(terms.after(10, 11, &[view(2), view(2)]), []);
        assert_eq!(terms.after(20, 21, &[view(2), view(3)]), [election(10, 21)]);
        assert_eq!(terms.after(30, 31, &[view(2), view(3)]), [], "one is behind");
        assert_eq!(terms.after(40, 41, &[view(4), view(5)]), [election(30, 41), election(30, 41)]);
    }

    #[test]
    fn who_was_not_asked_may_have_known_of_it() {
        let mut terms = Terms::default();
        assert_eq!(terms.after(10, 11, &[view(2), view(2)]), []);
        assert_eq!(terms.after(20, 21, &[view(2), None]), []);
        assert_eq!(terms.after(30, 31, &[view(2), view(3)]), [election(10, 31)]);
    }
}
