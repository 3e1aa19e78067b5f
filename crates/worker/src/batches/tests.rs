//! The tracker among crashes: a broker is simulated that delivers again whatever was not acknowledged.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const WEEK_MS: i64 = 7 * 24 * 3600 * 1000;

fn batch(id: &str, size: u32) -> Batch {
    let text = format!(r#"{{"id":"{id}","size":{size},"completion":{{"queue":"over"}}}}"#);
    Batch::parse(&text).unwrap()
}

/// A queue of notes, and where completions go.
#[derive(Default)]
struct Broker {
    ready: Vec<(Held, Publish)>,
    out: BTreeMap<Held, Publish>,
    completions: Vec<Publish>,
    next: u64,
}

impl Broker {
    fn publish(&mut self, publish: Publish) {
        if publish.routing_key == QUEUE {
            self.next += 1;
            self.ready.push((Held(self.next), publish));
        } else {
            self.completions.push(publish);
        }
    }

    /// The tracker is gone: what it held comes again.
    fn crash(&mut self) {
        self.ready.extend(std::mem::take(&mut self.out));
    }

    /// Carries out actions; `steps` is how many publishes and acknowledgements happen before a crash.
    fn carry_out(&mut self, actions: Vec<Action>, steps: &mut usize) -> Result<(), ()> {
        for action in actions {
            let (publish, acks) = match action {
                Action::Complete { publish, acks, .. } | Action::Merge { publish, acks } => {
                    (Some(publish), acks)
                }
                Action::Ack(acks) | Action::Abandon { acks, .. } => (None, acks),
            };
            if let Some(publish) = publish {
                *steps = steps.checked_sub(1).ok_or(())?;
                self.publish(publish);
            }
            for held in acks {
                *steps = steps.checked_sub(1).ok_or(())?;
                assert!(self.out.remove(&held).is_some(), "acknowledged twice");
            }
        }
        Ok(())
    }

    /// Runs a tracker until nothing is ready, or it crashes after so many steps.
    fn run(&mut self, tracker: &mut Tracker, mut steps: usize, now_ms: i64) -> Result<(), ()> {
        while !self.ready.is_empty() {
            let (held, publish) = self.ready.remove(0);
            let note = Note::decode(&publish.message.body).unwrap();
            self.out.insert(held, publish);
            self.carry_out(tracker.take(held, note, now_ms), &mut steps)?;
        }
        Ok(())
    }
}

fn header(publish: &Publish, name: &str) -> usize {
    let header = publish.message.headers.iter().find(|header| header.name == name);
    header.unwrap().value.parse().unwrap()
}

#[test]
fn a_batch_is_completed_once_and_its_completion_says_how_many_died() {
    let (batch, mut broker) = (batch("b", 1000), Broker::default());
    for job in 0..1000 {
        let end = if job % 10 == 0 { End::Dead } else { End::Done };
        broker.publish(note(&batch, &format!("job-{job}"), end));
    }
    broker.run(&mut Tracker::new(WEEK_MS), usize::MAX, 0).unwrap();
    let [completion] = &broker.completions[..] else { panic!("{}", broker.completions.len()) };
    assert_eq!(completion.message.id, "batch:b");
    let numbers = ["batch-size", "batch-done", "batch-dead"].map(|name| header(completion, name));
    assert_eq!(numbers, [1000, 900, 100]);
    assert!(broker.out.is_empty() && broker.ready.is_empty(), "nothing of it stays");
}

#[test]
fn a_job_that_was_replayed_counts_once_and_as_done() {
    let (batch, mut broker) = (batch("b", 2), Broker::default());
    let mut tracker = Tracker::new(WEEK_MS);
    for (job, end) in [("a", End::Dead), ("a", End::Dead), ("a", End::Done), ("a", End::Dead)] {
        broker.publish(note(&batch, job, end));
    }
    broker.run(&mut tracker, usize::MAX, 0).unwrap();
    assert_eq!(broker.completions.len(), 0, "one job of two is over");
    broker.publish(note(&batch, "b", End::Done));
    broker.run(&mut tracker, usize::MAX, 0).unwrap();
    assert_eq!(header(&broker.completions[0], "batch-done"), 2);
    broker.publish(note(&batch, "b", End::Done));
    broker.run(&mut tracker, usize::MAX, 0).unwrap();
    assert_eq!((broker.completions.len(), broker.out.len()), (1, 0), "a late note is let go");
}

#[test]
fn few_notes_are_held_of_a_large_batch_and_none_for_long() {
    let (batch, mut broker) = (batch("b", 10_000), Broker::default());
    let mut tracker = Tracker::new(WEEK_MS);
    let mut most = 0;
    for job in 0..9_000 {
        broker.publish(note(&batch, &job.to_string(), End::Done));
        broker.run(&mut tracker, usize::MAX, 0).unwrap();
        most = most.max(broker.out.len());
    }
    assert!(most <= 10_000 / 8 + 1, "{most} notes were held");
    let merges = tracker.tick(11 * 60 * 1000);
    assert!(matches!(merges[..], [Action::Merge { .. }]), "what is held for long is merged");
    broker.carry_out(merges, &mut usize::MAX.clone()).unwrap();
    broker.run(&mut tracker, usize::MAX, 11 * 60 * 1000).unwrap();
    assert_eq!(tracker.counts(), (1, 1));
    // Its age is that of its first note, in any tracker that comes later.
    broker.crash();
    let mut tracker = Tracker::new(WEEK_MS);
    broker.run(&mut tracker, usize::MAX, WEEK_MS).unwrap();
    let given_up = tracker.tick(WEEK_MS + 1);
    assert!(matches!(given_up[..], [Action::Abandon { over: 9000, size: 10_000, .. }]));
}

#[test]
fn with_too_many_batches_the_oldest_is_given_up_and_said() {
    let mut tracker = Tracker::new(WEEK_MS);
    let mut given_up = Vec::new();
    for number in 0..=BATCHES_OPEN_MAX as u64 {
        let note = note(&batch(&format!("b{number}"), 2), "job", End::Done);
        let note = Note::decode(&note.message.body).unwrap();
        given_up.extend(tracker.take(Held(number), note, number as i64));
    }
    let [Action::Abandon { id, .. }] = &given_up[..] else { panic!("{given_up:?}") };
    assert_eq!(id, "b0");
    assert_eq!(tracker.counts().0, BATCHES_OPEN_MAX);
}

use crate::limits::BATCHES_OPEN_MAX;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn over_crashes_and_repeats_a_batch_is_completed_with_one_id_and_true_numbers(
        notes in prop::collection::vec((0_u32..200, any::<bool>()), 0..400),
        crashes in prop::collection::vec(0_usize..300, 0..6),
    ) {
        let (batch, mut broker) = (batch("b", 200), Broker::default());
        // Repeats first, then every job as done.
        for (job, is_dead) in notes {
            let end = if is_dead { End::Dead } else { End::Done };
            broker.publish(note(&batch, &job.to_string(), end));
        }
        for job in 1..200_u32 {
            broker.publish(note(&batch, &job.to_string(), End::Done));
        }
        let has_first = broker.ready.iter().any(|(_, publish)| publish.message.id == "note:b:0");
        let mut tracker = Tracker::new(WEEK_MS);
        for steps in crashes {
            if broker.run(&mut tracker, steps, 0).is_err() {
                broker.crash();
                tracker = Tracker::new(WEEK_MS);
            }
        }
        broker.run(&mut tracker, usize::MAX, 0).unwrap();
        prop_assert!(has_first || broker.completions.is_empty(), "it is over too early");
        broker.publish(note(&batch, "0", End::Dead));
        broker.run(&mut tracker, usize::MAX, 0).unwrap();
        prop_assert!(!broker.completions.is_empty(), "it is never over");
        for completion in &broker.completions {
            prop_assert_eq!(&completion.message.id, "batch:b");
            prop_assert_eq!(header(completion, "batch-done") + header(completion, "batch-dead"), 200);
        }
    }

    #[test]
    fn without_a_crash_it_is_completed_exactly_once(
        jobs in prop::collection::vec(0_u32..50, 50..300),
    ) {
        let (batch, mut broker) = (batch("b", 50), Broker::default());
        for job in (0..50).chain(jobs) {
            broker.publish(note(&batch, &job.to_string(), End::Done));
        }
        broker.run(&mut Tracker::new(WEEK_MS), usize::MAX, 0).unwrap();
        prop_assert_eq!(broker.completions.len(), 1);
        prop_assert!(broker.out.is_empty());
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Note::decode(&bytes);
    }
}
