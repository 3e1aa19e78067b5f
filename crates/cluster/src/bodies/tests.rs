//! Bytes of one queue, moved by hand.

use machine::{Batch, Outcome};

use super::window::Window;
use super::*;

const QUEUE: QueueId = QueueId(7);
const ANN: ConsumerId = ConsumerId { session: SessionId(1), number: 1 };
const BOB: ConsumerId = ConsumerId { session: SessionId(2), number: 1 };

/// The entry that holds these messages, and where they are in it.
fn entry(seqs: Range<u64>, foreign_bytes: usize) -> (Bytes, Range<usize>) {
    let mut batch = Batch::new();
    let start = batch.bytes();
    for seq in seqs {
        batch.enqueue(&[QUEUE], &[], format!("message {seq}").as_bytes());
    }
    let end = batch.bytes();
    if foreign_bytes > 0 {
        batch.enqueue(&[QueueId(99)], &[], &vec![0; foreign_bytes]);
    }
    (batch.stamp(0).into(), start..end)
}

fn run(seqs: Range<u64>) -> Run {
    let (entry, range) = entry(seqs.clone(), 0);
    let bytes = entry.slice(range);
    Run { first_seq: seqs.start, count: (seqs.end - seqs.start) as u32, bytes }
}

fn first_seq_of(bytes: &Bytes) -> (u64, usize) {
    let mut messages = machine::Messages::of(QUEUE, bytes);
    let (_, body) = messages.next().unwrap();
    let text = std::str::from_utf8(body).unwrap();
    (text.strip_prefix("message ").unwrap().parse().unwrap(), 1 + messages.count())
}

/// One queue, the ranges that its machine would know, and what it sent.
struct Toy {
    bodies: Bodies,
    ready: Ranges,
    live: Ranges,
    consumers: u32,
    index: u64,
    sent: Vec<(ConsumerId, Range<u64>)>,
    fetches: Vec<Vec<FetchPart>>,
    /// What the dead-letter worker got.
    left: Vec<u64>,
}

impl Toy {
    fn new() -> Self {
        Self {
            bodies: Bodies::default(),
            ready: Ranges::new(),
            live: Ranges::new(),
            consumers: 1,
            index: 0,
            sent: Vec::new(),
            fetches: Vec::new(),
            left: Vec::new(),
        }
    }

    /// An entry of these messages is applied; with `hot` its bytes are at hand.
    fn enqueue(&mut self, seqs: Range<u64>, hot: bool) {
        self.index += 1;
        let (entry, range) = entry(seqs.clone(), 0);
        let source =
            Source::Entry { index: self.index, range: range.start as u32..range.end as u32 };
        let bytes = hot.then(|| cut_out(&entry, range));
        let count = (seqs.end - seqs.start) as u32;
        self.bodies.enqueued(QUEUE, seqs.start, count, source, bytes);
        self.ready.insert(seqs.clone());
        self.live.insert(seqs);
        self.pump();
    }

    fn deliver(&mut self, consumer: ConsumerId, seqs: Range<u64>, no_ack: bool) {
        self.deliver_as(consumer, seqs, no_ack, false);
    }

    fn deliver_as(&mut self, consumer: ConsumerId, seqs: Range<u64>, no_ack: bool, waits: bool) {
        self.ready.remove(seqs.clone());
        let outgoing = Outgoing {
            turn: 0,
            consumer,
            first_seq: seqs.start,
            count: (seqs.end - seqs.start) as u32,
            redelivered: false,
            no_ack,
            returns: 0,
            waits,
            got: None,
            detached: Vec::new(),
        };
        self.bodies.deliver(QUEUE, outgoing);
        self.pump();
    }

    /// The log has heard of deliveries below `to`.
    fn marked(&mut self, to: u64) {
        self.bodies.marked(QUEUE, to);
        self.pump();
    }

    /// They are dead, and handed out.
    fn leave(&mut self, seqs: Range<u64>) {
        self.ready.remove(seqs.clone());
        let count = (seqs.end - seqs.start) as u32;
        let leave = Leave { first_seq: seqs.start, count, reason: Outcome::Expired };
        self.bodies.leave(QUEUE, leave);
        self.pump();
    }

    fn settle(&mut self, seqs: Range<u64>) {
        self.ready.remove(seqs.clone());
        self.live.remove(seqs.clone());
        self.bodies.settled(QUEUE, &Ranges::from(seqs), Some((&self.live).into()));
    }

    fn pump(&mut self) {
        let readers = Readers {
            ready: Some((&self.ready).into()),
            kept: Some((&self.live).into()),
            consumers: self.consumers,
            stream: None,
        };
        while let Some(step) = self.bodies.next(QUEUE, || readers) {
            match step {
                Step::Deliver { outgoing, bytes } => {
                    assert_eq!(first_seq_of(&bytes), (outgoing.first_seq, outgoing.count as usize));
                    let end = outgoing.first_seq + u64::from(outgoing.count);
                    self.sent.push((outgoing.consumer, outgoing.first_seq..end));
                }
                Step::Sift(_) => panic!("a plain queue has no filter"),
                Step::Leave { leave, bytes } => {
                    assert_eq!(first_seq_of(&bytes), (leave.first_seq, leave.count as usize));
                    self.left.extend(leave.first_seq..leave.first_seq + u64::from(leave.count));
                }
                Step::Fetch { parts, .. } => self.fetches.push(parts),
            }
        }
        self.bodies.cut(|_| readers);
        self.bodies.check(|_| Some(readers));
    }

    /// The fetch under way comes back with these runs.
    fn fetched(&mut self, runs: Vec<Run>) {
        let readers = Readers {
            ready: Some((&self.ready).into()),
            kept: Some((&self.live).into()),
            consumers: self.consumers,
            stream: None,
        };
        self.bodies.fetched(QUEUE, runs, readers);
        self.pump();
    }

    /// The fetch under way comes back with what it asked for.
    fn fetched_all(&mut self) {
        let parts = self.fetches.pop().unwrap();
        assert!(self.fetches.is_empty(), "one fetch at a time");
        let read = |part: FetchPart| {
            let run = run(part.first_seq..part.first_seq + part.count);
            pick(QUEUE, run, &part.wanted, true)
        };
        self.fetched(parts.into_iter().flat_map(read).collect());
    }

    fn sent_seqs(&self) -> Vec<u64> {
        self.sent.iter().flat_map(|(_, span)| span.clone()).collect()
    }

    fn checkpoint(&mut self, stored: &[Stored]) {
        let live = &self.live;
        self.bodies.checkpointed(self.index, stored, |_| Some(live.into()));
    }
}

fn stored(seqs: Range<u64>, segment: u64) -> Stored {
    Stored { queue: QUEUE, first_seq: seqs.start, last_seq: seqs.end - 1, segment }
}

#[test]
fn what_is_in_memory_leaves_at_once_and_is_accounted_no_more() {
    let mut toy = Toy::new();
    toy.enqueue(1..11, true);
    toy.deliver(ANN, 1..4, false);
    toy.deliver(BOB, 4..11, false);
    assert_eq!(toy.sent_seqs(), (1..11).collect::<Vec<_>>());
    assert!(toy.fetches.is_empty());
    assert_eq!(toy.bodies.hot_bytes, 0);
}

#[test]
fn a_requeued_message_whose_neighbours_are_in_memory_is_fetched_and_leaves() {
    let mut toy = Toy::new();
    toy.enqueue(1..11, true);
    toy.deliver(ANN, 1..6, false);
    toy.ready.insert(2..3);
    toy.deliver(ANN, 2..3, false);
    toy.fetched_all();
    toy.deliver(ANN, 6..11, false);
    assert_eq!(toy.sent_seqs(), [1, 2, 3, 4, 5, 2, 6, 7, 8, 9, 10]);
    assert!(toy.fetches.is_empty(), "the others were in memory all the time");
}

#[test]
fn deliveries_behind_one_that_waits_for_the_disk_wait_too() {
    let mut toy = Toy::new();
    toy.consumers = 0;
    toy.enqueue(1..5, false);
    toy.enqueue(5..9, true);
    toy.deliver(ANN, 1..5, false);
    toy.deliver(BOB, 5..9, false);
    assert!(toy.sent.is_empty());
    toy.fetched_all();
    assert_eq!(toy.sent, [(ANN, 1..5), (BOB, 5..9)]);
}

#[test]
fn a_delivery_leaves_as_far_as_the_log_has_heard_of_it() {
    let mut toy = Toy::new();
    toy.enqueue(1..11, true);
    toy.deliver(ANN, 1..3, false);
    toy.deliver_as(ANN, 3..8, false, true);
    toy.deliver_as(BOB, 8..11, false, true);
    assert_eq!(toy.sent, [(ANN, 1..3)]);
    toy.marked(3);
    assert_eq!(toy.sent.len(), 1);
    toy.marked(5);
    assert_eq!(toy.sent[1..], [(ANN, 3..5)]);
    toy.marked(11);
    assert_eq!(toy.sent[2..], [(ANN, 5..8), (BOB, 8..11)]);
    assert!(toy.fetches.is_empty());
}

#[test]
fn what_waits_for_the_log_is_read_no_further_ahead_than_its_first_message() {
    let mut toy = Toy::new();
    toy.consumers = 0;
    toy.enqueue(1..3, false);
    toy.checkpoint(&[stored(1..3, 1)]);
    toy.enqueue(3..5, false);
    toy.fetches.clear();
    toy.deliver_as(ANN, 1..5, false, true);
    assert_eq!(toy.fetches.len(), 1, "it is read while it waits");
    toy.fetches.clear();
    toy.fetched(vec![run(1..3)]);
    assert!(toy.fetches.is_empty() && toy.sent.is_empty(), "and the others are not");
    toy.marked(5);
    toy.fetched_all();
    assert_eq!(toy.sent_seqs(), [1, 2, 3, 4]);
}

#[test]
fn what_waits_for_the_log_is_withdrawn_like_what_waits_for_its_bytes() {
    let mut toy = Toy::new();
    toy.enqueue(1..5, true);
    toy.deliver_as(ANN, 1..3, false, true);
    toy.deliver_as(BOB, 3..5, false, true);
    let (withdrawn, is_later) = toy.bodies.withdraw(
        QUEUE,
        ANN,
        Withdrawn::Unsettled,
        Some(Ticket(1)),
        Some((&toy.live).into()),
    );
    assert_eq!((withdrawn, is_later), (Ranges::from(1..3), false));
    toy.marked(5);
    assert_eq!(toy.sent, [(BOB, 3..5)]);
}

#[test]
fn a_fetch_that_finds_its_messages_moved_is_asked_again_of_the_new_place() {
    let mut toy = Toy::new();
    toy.enqueue(1..5, false);
    toy.fetches.clear();
    toy.deliver(ANN, 1..5, false);
    toy.checkpoint(&[stored(1..5, 3)]);
    toy.fetched(Vec::new());
    assert!(matches!(toy.fetches[0][0].source, Source::Segment { segment: 3 }));
    toy.fetched_all();
    assert_eq!(toy.sent_seqs(), [1, 2, 3, 4]);
}

#[test]
fn reading_ahead_skips_what_is_settled_and_does_not_ask_for_ever() {
    let mut toy = Toy::new();
    toy.enqueue(1..21, false);
    toy.fetches.clear();
    toy.fetched(Vec::new());
    assert!(toy.fetches.is_empty(), "nothing came: reading ahead waits for a delivery");
    toy.checkpoint(&[stored(1..21, 1)]);
    toy.settle(2..20);
    toy.pump();
    // Of the segment only the first and the last are left: two runs with a hole between them.
    toy.fetches.pop().unwrap();
    toy.fetched(vec![run(1..2), run(20..21)]);
    assert!(toy.fetches.is_empty());
    toy.deliver(ANN, 1..2, false);
    toy.deliver(ANN, 20..21, false);
    assert_eq!(toy.sent_seqs(), [1, 20]);
    assert!(toy.fetches.is_empty());
}

#[test]
fn what_is_settled_and_waits_for_its_bytes_keeps_its_place_until_it_has_left() {
    let mut toy = Toy::new();
    toy.consumers = 0;
    toy.enqueue(1..5, false);
    toy.deliver(ANN, 1..5, true);
    toy.settle(1..5);
    assert_eq!(toy.bodies.waiting(QUEUE), Ranges::from(1..5));
    assert_eq!(toy.bodies.in_entries_to(1).len(), 1);
    toy.checkpoint(&[stored(1..5, 3)]);
    toy.fetched(Vec::new());
    toy.fetches.remove(0);
    toy.fetched_all();
    assert_eq!(toy.sent_seqs(), [1, 2, 3, 4]);
    assert!(toy.bodies.queues[&QUEUE].extents.is_empty(), "and is forgotten after that");
}

#[test]
fn what_is_settled_and_waited_in_vain_keeps_no_place() {
    let waiting = |no_ack| {
        let mut toy = Toy::new();
        toy.consumers = 0;
        toy.enqueue(1..5, false);
        toy.deliver(ANN, 1..5, no_ack);
        toy.settle(1..5);
        toy
    };
    let has_no_place = |toy: Toy| toy.bodies.queues[&QUEUE].extents.is_empty();
    let live = Ranges::new();
    let mut toy = waiting(true);
    toy.bodies.end_sessions(
        |session| session == ANN.session,
        |_| Some((&live).into()),
        &mut Vec::new(),
    );
    assert!(has_no_place(toy), "who waited is gone");
    let mut toy = waiting(true);
    assert_eq!(toy.bodies.take_waiting(|_| Some((&live).into())).len(), 1);
    assert!(has_no_place(toy), "another leads");
    let mut toy = waiting(true);
    assert_eq!(toy.bodies.cancelled(QUEUE, ANN, Some((&live).into())).len(), 1);
    assert!(has_no_place(toy), "its consumer is cancelled");
    let mut toy = waiting(false);
    toy.bodies.withdraw(QUEUE, ANN, Withdrawn::Unsettled, None, Some((&live).into()));
    assert!(has_no_place(toy), "its consumer went");
    let mut toy = waiting(false);
    toy.fetched_all();
    assert!(has_no_place(toy), "it was settled by who had it before, and leaves all the same");
}

#[test]
fn withdrawn_deliveries_come_back_but_for_what_is_settled() {
    let mut toy = Toy::new();
    toy.consumers = 0;
    toy.enqueue(1..9, false);
    toy.deliver(ANN, 1..3, false);
    toy.deliver(BOB, 3..5, true);
    toy.deliver(ANN, 5..7, false);
    let (withdrawn, is_answered_later) = toy.bodies.withdraw(
        QUEUE,
        ANN,
        Withdrawn::Unsettled,
        Some(Ticket(1)),
        Some((&toy.live).into()),
    );
    assert_eq!(withdrawn.ranges().collect::<Vec<_>>(), [1..3, 5..7]);
    assert!(!is_answered_later);
    let (withdrawn, is_answered_later) = toy.bodies.withdraw(
        QUEUE,
        BOB,
        Withdrawn::Unsettled,
        Some(Ticket(2)),
        Some((&toy.live).into()),
    );
    assert!(withdrawn.is_empty());
    assert!(is_answered_later);
    toy.fetched_all();
    assert_eq!(toy.sent, [(BOB, 3..5)]);
}

#[test]
fn what_a_cancelled_consumer_was_given_is_sent_before_its_end_is_answered() {
    let mut toy = Toy::new();
    toy.consumers = 0;
    toy.enqueue(1..9, false);
    toy.deliver(ANN, 1..3, false);
    toy.deliver(BOB, 3..5, false);
    toy.deliver(ANN, 5..7, false);
    let live = Some((&toy.live).into());
    let (withdrawn, is_answered_later) =
        toy.bodies.withdraw(QUEUE, ANN, Withdrawn::Nothing, Some(Ticket(1)), live);
    assert!(withdrawn.is_empty() && is_answered_later);
    let tickets = |toy: &Toy| {
        let all = toy.bodies.queues[&QUEUE].outbox.clone().into_all();
        all.into_iter().map(|outgoing| outgoing.detached).collect::<Vec<_>>()
    };
    assert_eq!(tickets(&toy), [vec![], vec![], vec![Ticket(1)]]);
    toy.fetched_all();
    assert_eq!(toy.sent, [(ANN, 1..3), (BOB, 3..5), (ANN, 5..7)]);
}

#[test]
fn the_fetch_of_a_queue_that_is_gone_changes_nothing() {
    let mut toy = Toy::new();
    toy.enqueue(1..9, false);
    toy.deliver(ANN, 1..3, false);
    let waited = toy.bodies.dropped(QUEUE, |_| None);
    assert_eq!(waited.len(), 1);
    toy.bodies.fetched(QUEUE, vec![run(1..9)], Readers::default());
    assert!(toy.bodies.queues.is_empty() && toy.bodies.waiting.is_empty());
    assert_eq!(toy.bodies.hot_bytes, 0);
}

#[test]
fn what_was_settled_while_it_was_fetched_is_not_kept_in_memory() {
    let mut toy = Toy::new();
    toy.enqueue(1..9, false);
    assert_eq!(toy.fetches.len(), 1, "it is read ahead");
    toy.settle(1..9);
    toy.fetched_all();
    assert_eq!(toy.bodies.hot_bytes, 0);
}

#[test]
fn a_fetch_spans_extents_and_stops_where_memory_goes_on() {
    let mut toy = Toy::new();
    toy.consumers = 0;
    toy.enqueue(1..5, false);
    toy.enqueue(5..9, false);
    toy.enqueue(9..13, true);
    toy.ready.remove(1..3);
    toy.deliver(ANN, 3..11, false);
    let spans: Vec<_> = toy.fetches[0].iter().map(|part| (part.first_seq, part.count)).collect();
    assert_eq!(spans, [(1, 4), (5, 4)]);
    assert_eq!(toy.fetches[0][0].wanted, Ranges::from(3..5), "no more is kept");
    toy.fetched_all();
    assert_eq!(toy.sent_seqs(), (3..11).collect::<Vec<_>>());
}

#[test]
fn what_is_due_all_over_a_backlog_is_one_fetch_of_nothing_else() {
    let due: Vec<u64> = (0..100).map(|nth| 1 + (nth * 7919) % 10_000).collect();
    for is_in_segment in [false, true] {
        let mut toy = Toy::new();
        toy.consumers = 0;
        for nth in 0..50 {
            toy.enqueue(1 + nth * 200..201 + nth * 200, false);
        }
        if is_in_segment {
            toy.checkpoint(&[stored(1..10_001, 1)]);
        }
        toy.ready = Ranges::new();
        for seq in &due {
            toy.deliver(ANN, *seq..*seq + 1, false);
        }
        // The first was asked for when nothing else was due.
        toy.fetched_all();
        let wanted: u64 = toy.fetches[0].iter().map(|part| part.wanted.len()).sum();
        assert_eq!(wanted, 99);
        toy.fetched_all();
        assert_eq!(toy.sent_seqs(), due, "in the order in which they fell due");
        assert_eq!(toy.bodies.hot_bytes, 0);
    }
}

#[test]
fn what_leaves_does_not_hold_up_what_is_delivered() {
    let mut toy = Toy::new();
    toy.consumers = 0;
    toy.enqueue(1..11, false);
    toy.enqueue(11..21, true);
    toy.leave(3..6);
    toy.deliver(ANN, 11..21, false);
    assert_eq!(toy.sent_seqs(), (11..21).collect::<Vec<_>>());
    toy.fetched_all();
    assert_eq!(toy.left, [3, 4, 5]);
    assert_eq!(toy.bodies.hot_bytes, 0);
}

#[test]
fn what_leaves_and_is_in_memory_needs_no_disk() {
    let mut toy = Toy::new();
    toy.consumers = 0;
    toy.enqueue(1..11, true);
    toy.leave(1..4);
    toy.deliver(ANN, 4..11, false);
    assert_eq!(toy.left, [1, 2, 3]);
    assert!(toy.fetches.is_empty());
    toy.settle(1..4);
    assert_eq!(toy.bodies.hot_bytes, 0);
}

#[test]
fn what_is_settled_does_not_leave_any_more() {
    let mut toy = Toy::new();
    toy.consumers = 0;
    toy.enqueue(1..11, false);
    toy.leave(1..4);
    toy.settle(1..3);
    toy.pump();
    toy.fetched_all();
    assert_eq!(toy.left, [3]);
    toy.leave(4..6);
    toy.bodies.take_leaves(&mut Vec::new());
    toy.fetched_all();
    assert_eq!(toy.left, [3], "it is handed out anew, or not at all");
}

#[test]
fn no_more_is_with_the_dead_letter_worker_than_it_is_to_keep() {
    let mut toy = Toy::new();
    toy.consumers = 0;
    // Each takes more than so many bytes.
    let many = crate::limits::LEAVING_BYTES_PER_GROUP as u64 / 20;
    toy.enqueue(1..many, false);
    toy.enqueue(many..many + 10, false);
    toy.leave(1..many);
    toy.fetched_all();
    assert_eq!(toy.left.len() as u64, many - 1);
    toy.left.clear();
    toy.leave(many..many + 5);
    assert!(toy.fetches.is_empty());
    toy.deliver(ANN, many + 5..many + 10, false);
    toy.fetched_all();
    assert_eq!(toy.sent_seqs(), (many + 5..many + 10).collect::<Vec<_>>());
    assert!(toy.left.is_empty());
    let mut freed = Vec::new();
    toy.bodies.take_held_up(&mut freed);
    assert!(freed.is_empty());
    toy.settle(1..many);
    toy.bodies.take_held_up(&mut freed);
    assert_eq!(freed, [QUEUE]);
    toy.pump();
    toy.fetched_all();
    assert_eq!(toy.left, (many..many + 5).collect::<Vec<_>>());
}

#[test]
fn what_leaves_in_bulk_and_what_is_delivered_in_bulk_share_each_fetch() {
    let mut toy = Toy::new();
    toy.consumers = 0;
    for nth in 0..200 {
        toy.enqueue(1 + nth * 10..11 + nth * 10, false);
    }
    toy.leave(1..1001);
    toy.deliver(ANN, 1001..2001, false);
    toy.fetched_all();
    for _ in 0..2 {
        let (left, sent) = (toy.left.len(), toy.sent_seqs().len());
        toy.fetched_all();
        assert!(toy.left.len() > left && toy.sent_seqs().len() > sent);
    }
}

#[test]
fn messages_picked_of_a_run_are_those_that_are_wanted() {
    let mut random = wal::sim::Random::new(9);
    for _ in 0..500 {
        let first = 1 + random.below(50);
        let span = first..first + 1 + random.below(40);
        let wanted: Ranges = (0..6)
            .map(|_| (random.below(100), 1 + random.below(9)))
            .map(|(start, count)| start..start + count)
            .collect();
        let picked = pick(QUEUE, run(span.clone()), &wanted, true);
        let all: Ranges = picked.iter().map(Run::span).collect();
        assert_eq!(all, wanted.within(span));
        for run in picked {
            assert_eq!(first_seq_of(&run.bytes), (run.first_seq, run.count as usize));
        }
    }
}

#[test]
fn a_purge_empties_a_large_window() {
    let mut toy = Toy::new();
    toy.consumers = 0;
    for nth in 0..500 {
        toy.enqueue(1 + nth * 10..11 + nth * 10, true);
    }
    assert!(toy.bodies.hot_bytes > 0);
    toy.settle(1..5001);
    assert_eq!(toy.bodies.hot_bytes, 0);
    assert!(toy.bodies.queues[&QUEUE].extents.is_empty());
}

#[test]
fn an_idle_queue_keeps_its_oldest_messages_in_memory_and_no_more_than_its_share() {
    let mut toy = Toy::new();
    toy.consumers = 0;
    let mut next = 1;
    while next < 40_000 {
        toy.enqueue(next..next + 1000, true);
        next += 1000;
    }
    assert!(toy.bodies.hot_bytes <= HOT_BYTES_IDLE_QUEUE);
    assert!(toy.bodies.hot_bytes > HOT_BYTES_IDLE_QUEUE / 2);
    toy.deliver(ANN, 1..1001, false);
    assert!(toy.fetches.is_empty());
}

#[test]
fn idle_queues_leave_half_of_the_memory_to_those_with_consumers() {
    let mut bodies = Bodies::default();
    let idle = Readers::default();
    let busy = Readers { consumers: 1, ..Readers::default() };
    let large = Bytes::from(vec![0; 100_000]);
    for queue in 0..200 {
        for seq in 1..6 {
            let source = Source::Entry { index: seq, range: 0..1 };
            let bytes = Some((large.clone(), large.len()));
            bodies.enqueued(QueueId(queue), seq, 1, source, bytes);
            bodies.cut(|_| idle);
        }
    }
    assert!(bodies.hot_bytes <= HOT_BYTES_IDLE);
    assert!(bodies.hot_bytes > HOT_BYTES_IDLE - 200_000);
    for seq in 1..60 {
        let source = Source::Entry { index: seq, range: 0..1 };
        bodies.enqueued(QueueId(999), seq, 1, source, Some((large.clone(), large.len())));
        bodies.cut(|_| busy);
    }
    assert!(bodies.hot_bytes > HOT_BYTES_IDLE + 5_000_000);
    assert!(bodies.hot_bytes <= HOT_BYTES_PER_GROUP);
}

#[test]
fn a_small_part_of_a_large_entry_does_not_keep_it_in_memory() {
    let (large, range) = entry(1..3, 100_000);
    let (bytes, pinned) = cut_out(&large, range.clone());
    assert_eq!((bytes.len(), pinned), (range.len(), range.len()));
    let (small, range) = entry(1..3, 50);
    assert_eq!(cut_out(&small, range).1, small.len());
}

#[test]
fn a_run_that_is_used_up_little_by_little_lets_go_of_its_buffer() {
    let mut toy = Toy::new();
    toy.enqueue(1..1001, true);
    for seq in 1..1000 {
        // `check` compares what is kept with what is accounted after each.
        toy.deliver(ANN, seq..seq + 1, false);
    }
    assert!(toy.bodies.hot_bytes < 200);
}

#[test]
fn windows_of_any_history_hold_each_message_once_and_in_order() {
    let mut random = wal::sim::Random::new(5);
    for _ in 0..2000 {
        let mut window = Window::default();
        let mut held = Ranges::new();
        for _ in 0..12 {
            let first = 1 + random.below(30);
            let span = first..first + 1 + random.below(12);
            let before = held.len();
            let is_changed = window.fill(QUEUE, run(span.clone()));
            held.insert(span);
            assert_eq!(is_changed, held.len() > before);
            let spans: Ranges = window.runs().map(|(span, _)| span).collect();
            assert_eq!(spans, held);
            assert_eq!(window.counted_anew(), window.bytes());
        }
        let mut at = 0;
        while let Some(first) = held.first() {
            let count = 1 + random.below(5) as u32;
            let taken = window.take(QUEUE, first, count).unwrap();
            assert!(taken.first_seq >= at && taken.first_seq == first && taken.count <= count);
            assert_eq!(first_seq_of(&taken.bytes), (first, taken.count as usize));
            held.remove(taken.span());
            at = taken.end();
        }
        assert_eq!(window.bytes(), 0);
    }
}

#[test]
fn what_an_entry_brings_in_parts_goes_out_as_one_without_what_is_for_others() {
    let mut batch = Batch::new();
    let mut parts = Vec::new();
    for seq in 1..=6 {
        let start = batch.bytes();
        batch.enqueue(&[QUEUE], &[], format!("message {seq}").as_bytes());
        batch.enqueue(&[QueueId(99)], &[], &[0; 64]);
        parts.push((seq, start..batch.bytes()));
    }
    let entry = Bytes::from(batch.stamp(0));
    let mut toy = Toy::new();
    for (seq, range) in parts {
        // The fourth is missing: what comes behind it is not joined.
        if seq == 4 {
            continue;
        }
        let source = Source::Entry { index: 1, range: range.start as u32..range.end as u32 };
        toy.bodies.enqueued_in_parts(QUEUE, seq, 1, source, &entry[range]);
        toy.ready.insert(seq..seq + 1);
        toy.live.insert(seq..seq + 1);
    }
    toy.bodies.end_entry();
    let runs = toy.bodies.queues[&QUEUE].window.runs().collect::<Vec<_>>();
    let own_bytes = entry_of_one().len();
    assert_eq!(runs, [(1..4, 3 * own_bytes), (5..7, 2 * own_bytes)]);
    toy.deliver(ANN, 1..4, false);
    toy.deliver(ANN, 5..7, false);
    assert_eq!(toy.sent, [(ANN, 1..4), (ANN, 5..7)]);
}

/// The command of one message.
fn entry_of_one() -> Bytes {
    let (entry, range) = entry(1..2, 0);
    entry.slice(range)
}

#[test]
fn parts_of_a_queue_that_the_same_entry_drops_are_forgotten() {
    let mut toy = Toy::new();
    let (entry, range) = entry(1..2, 100);
    let source = Source::Entry { index: 1, range: range.start as u32..range.end as u32 };
    toy.bodies.enqueued_in_parts(QUEUE, 1, 1, source, &entry[range]);
    toy.bodies.dropped(QUEUE, |_| None);
    toy.bodies.end_entry();
    assert!(toy.bodies.queues.is_empty());
}

#[test]
fn a_message_that_a_part_has_twice_is_one_command_and_two_messages() {
    let mut batch = Batch::new();
    let start = batch.bytes();
    batch.enqueue(&[QUEUE, QUEUE], &[], b"message 1");
    batch.enqueue(&[QUEUE], &[], b"message 3");
    let range = start..batch.bytes();
    batch.enqueue(&[QueueId(99)], &[], &[0; 1000]);
    let entry = Bytes::from(batch.stamp(0));
    let mut bodies = Bodies::default();
    let source = Source::Entry { index: 1, range: range.start as u32..range.end as u32 };
    bodies.enqueued_in_parts(QUEUE, 1, 3, source, &entry[range.clone()]);
    bodies.end_entry();
    let run = bodies.queues[&QUEUE].window.copy(QUEUE, 1, 3).unwrap();
    assert_eq!((run.count, run.bytes.len()), (3, range.len()));
    assert_eq!(machine::Messages::of(QUEUE, &run.bytes).count(), 3);
}
