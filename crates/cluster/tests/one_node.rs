//! One node with real threads and real files: what goes in comes out, also after a restart.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "a test of the shell: it starts nodes in directories of its own"
)]

#[path = "common/directory.rs"]
mod directory;
#[path = "common/session.rs"]
mod session;

use std::time::{Duration, Instant};

use cluster::{Answer, Leaving, NotDescribed, NotPeeked, PeekSpec, Request, Ticket};
use directory::{Directory, node};
use machine::{
    Attributes, Batch, ConsumerId, ConsumerSpec, GroupId, Messages, Outcome, PeekFilter, Position,
    QueueId, QueueStatus, Ranges, Value,
};
use session::{Session, TIMEOUT, run};

impl Session {
    /// The next dead messages, and their bodies.
    async fn next_leaving(&mut self) -> (Leaving, Vec<String>) {
        match self.next().await {
            Answer::Leaving(leaving) => {
                let messages = Messages::of(leaving.store, &leaving.bytes);
                let bodies = messages.map(|(_, body)| String::from_utf8(body.to_vec()).unwrap());
                let bodies = bodies.collect();
                (leaving, bodies)
            }
            other => panic!("not the dead-letter worker's: {other:?}"),
        }
    }

    async fn settle(
        &mut self,
        (queue, group): (QueueId, GroupId),
        seqs: std::ops::Range<u64>,
        outcome: Outcome,
    ) {
        let consumer = ConsumerId { session: self.id, number: 1 };
        let (ranges, credit) = (Ranges::from(seqs.clone()), (seqs.end - seqs.start) as u32);
        self.ask(Request::Settle { group, queue, consumer, ranges, outcome, credit }).await;
    }

    async fn status(&mut self, (queue, group): (QueueId, GroupId)) -> QueueStatus {
        self.ask(Request::Status { ticket: Ticket(6), group, queue }).await;
        loop {
            if let Answer::Status { ticket: Ticket(6), status } = self.next().await {
                return status.unwrap();
            }
        }
    }

    async fn publish(&mut self, group: GroupId, queue: QueueId, bodies: &[&str]) {
        let mut batch = Batch::new();
        for body in bodies {
            batch.enqueue(&[queue], &[b"head"], body.as_bytes());
        }
        self.ask(Request::Append { group, ticket: Ticket(2), batch, settles: Vec::new() }).await;
        match self.next().await {
            Answer::Appended { ticket: Ticket(2) } => {}
            other => panic!("not appended: {other:?}"),
        }
    }

    async fn attach(&mut self, group: GroupId, queue: QueueId, credit: u32) -> ConsumerId {
        let consumer = ConsumerId { session: self.id, number: 1 };
        let spec = ConsumerSpec { credit, ..ConsumerSpec::default() };
        self.ask(Request::Attach { ticket: Ticket(3), group, queue, consumer, spec }).await;
        match self.next().await {
            Answer::Attached { result: Ok(()), .. } => consumer,
            other => panic!("not attached: {other:?}"),
        }
    }

    /// The next `count` messages: sequence number, flag, body.
    async fn take(&mut self, queue: QueueId, count: usize) -> Vec<(u64, bool, String)> {
        let mut taken = Vec::new();
        while taken.len() < count {
            let Answer::Delivered(delivery) = self.next().await else { continue };
            let messages: Vec<_> = Messages::of(queue, &delivery.bytes).collect();
            assert_eq!(messages.len(), delivery.count as usize);
            for (seq, (_, body)) in (delivery.first_seq..).zip(messages) {
                let body = String::from_utf8(body.to_vec()).unwrap();
                taken.push((seq, delivery.redelivered, body));
            }
        }
        taken
    }
}

#[test]
fn what_is_confirmed_and_not_settled_comes_again_after_a_restart_flagged() {
    let directory = Directory::new("restart");
    let (queue, group) = {
        let cluster = node(&directory.0);
        let mut place = None;
        run(async {
            let mut session = Session::open(&cluster);
            let (queue, group) = session.declare("orders").await;
            session.publish(group, queue, &["a", "b", "c"]).await;
            let consumer = session.attach(group, queue, 10).await;
            let taken = session.take(queue, 3).await;
            let bodies: Vec<_> = taken.iter().map(|(_, again, body)| (*again, &body[..])).collect();
            assert_eq!(bodies, [(false, "a"), (false, "b"), (false, "c")]);
            let mut ranges = Ranges::new();
            ranges.insert(taken[0].0..taken[1].0);
            let outcome = Outcome::Done;
            session
                .ask(Request::Settle { group, queue, consumer, ranges, outcome, credit: 1 })
                .await;
            // The settle is logged before this: both are of one group, in order.
            session.publish(group, queue, &["d"]).await;
            place = Some((queue, group));
        });
        cluster.stop();
        place.unwrap()
    };
    let cluster = node(&directory.0);
    run(async {
        let mut session = Session::open(&cluster);
        assert_eq!(session.declare("orders").await, (queue, group));
        session.attach(group, queue, 10).await;
        let taken = session.take(queue, 3).await;
        let bodies: Vec<_> = taken.iter().map(|(_, again, body)| (*again, &body[..])).collect();
        assert_eq!(bodies, [(true, "b"), (true, "c"), (true, "d")]);
    });
    cluster.stop();
}

#[test]
fn a_backlog_larger_than_the_log_is_kept_in_segments_and_comes_in_order() {
    let directory = Directory::new("backlog");
    let body = "x".repeat(1000);
    const COUNT: usize = 20_000;
    let cluster = node(&directory.0);
    run(async {
        let mut session = Session::open(&cluster);
        let (queue, group) = session.declare("backlog").await;
        for nth in 0..COUNT / 100 {
            let bodies: Vec<String> =
                (0..100).map(|part| format!("{}-{body}", nth * 100 + part)).collect();
            let bodies: Vec<&str> = bodies.iter().map(|body| &body[..]).collect();
            session.publish(group, queue, &bodies).await;
        }
    });
    cluster.stop();
    let cluster = node(&directory.0);
    run(async {
        let mut session = Session::open(&cluster);
        let (queue, group) = session.declare("backlog").await;
        let consumer = session.attach(group, queue, 500).await;
        let mut next = 0;
        while next < COUNT {
            let taken = session.take(queue, 1).await;
            let mut ranges = Ranges::new();
            let credit = taken.len() as u32;
            for (seq, _, text) in taken {
                assert!(text.starts_with(&format!("{next}-")), "{next} is {}", &text[..20]);
                ranges.insert(seq..seq + 1);
                next += 1;
            }
            let outcome = Outcome::Done;
            session.ask(Request::Settle { group, queue, consumer, ranges, outcome, credit }).await;
        }
    });
    assert!(cluster.counters().fetches.load(std::sync::atomic::Ordering::Relaxed) > 0);
    cluster.stop();
}

/// A look at all of a queue, with so much of each body.
fn look(count: u32, body_bytes_max: u32) -> PeekSpec {
    let (from, filter, contains) = (Position::FIRST, PeekFilter::All, bytes::Bytes::new());
    PeekSpec { from, filter, count, body_bytes_max, contains }
}

#[test]
fn a_backlog_is_looked_at_from_one_end_to_the_other_and_comes_as_if_nobody_had() {
    let directory = Directory::new("peeked");
    let body = "x".repeat(1000);
    const COUNT: usize = 5_000;
    let cluster = node(&directory.0);
    run(async {
        let mut session = Session::open(&cluster);
        let (queue, group) = session.declare("backlog").await;
        for nth in 0..COUNT / 100 {
            let bodies: Vec<String> =
                (0..100).map(|part| format!("{:06}-{body}", nth * 100 + part)).collect();
            let bodies: Vec<&str> = bodies.iter().map(|body| &body[..]).collect();
            session.publish(group, queue, &bodies).await;
        }
        // Meanwhile checkpoints move what is looked at.
        let (mut seen, mut from) = (0, Some(Position::FIRST));
        while let Some(position) = from {
            let spec = PeekSpec { from: position, ..look(500, 6) };
            let shown = cluster.peek((group, queue), spec).await.unwrap();
            for message in &shown.messages {
                assert_eq!(message.body, format!("{seen:06}"));
                assert_eq!((message.body_bytes, &message.head[..]), (1007, &b"head"[..]));
                seen += 1;
            }
            from = shown.next;
        }
        assert_eq!(seen, COUNT);
        let contains = bytes::Bytes::from_static(b"004321");
        let found = PeekSpec { contains, ..look(5, 6) };
        let found = cluster.peek((group, queue), found).await.unwrap();
        assert_eq!(found.messages.len(), 1);
        assert_eq!(cluster.counters().fetches.load(std::sync::atomic::Ordering::Relaxed), 0);
        session.attach(group, queue, 10).await;
        let taken = session.take(queue, 10).await;
        assert!(taken.iter().all(|(_, again, _)| !again));
        assert!(taken.iter().map(|(seq, ..)| *seq).eq(1..=10));
        let status = session.status((queue, group)).await;
        assert_eq!((status.ready, status.unsettled), (COUNT as u64 - 10, 10));
    });
    cluster.stop();
}

#[test]
fn a_queue_in_memory_returns_what_its_dead_consumer_held() {
    let directory = Directory::new("memory");
    let cluster = node(&directory.0);
    run(async {
        let mut owner = Session::open(&cluster);
        let (queue, group) = owner.declare_with("scratch", false, &[]).await;
        assert!(group.is_local());
        owner.publish(group, queue, &["a", "b"]).await;
        let mut first = Session::open(&cluster);
        first.attach(group, queue, 10).await;
        assert_eq!(first.take(queue, 2).await.len(), 2);
        drop(first);
        owner.attach(group, queue, 10).await;
        let taken = owner.take(queue, 2).await;
        let bodies: Vec<_> = taken.iter().map(|(_, again, body)| (*again, &body[..])).collect();
        assert_eq!(bodies, [(true, "a"), (true, "b")]);
    });
    cluster.stop();
}

fn text(value: &str) -> Value {
    Value::LongStr(value.as_bytes().to_vec())
}

#[test]
fn a_delayed_message_keeps_its_time_through_a_restart() {
    let directory = Directory::new("delayed");
    let published = Instant::now();
    let delay = Duration::from_millis(2500);
    let attributes = Attributes { delay_ms: Some(2500), ..Attributes::default() };
    let cluster = node(&directory.0);
    run(async {
        let mut session = Session::open(&cluster);
        let place = session.declare("later").await;
        session.publish_with(place, &attributes, "later").await;
        session.publish(place.1, place.0, &["now"]).await;
    });
    let confirmed = Instant::now();
    cluster.stop();
    let cluster = node(&directory.0);
    run(async {
        let mut session = Session::open(&cluster);
        let (queue, group) = session.declare("later").await;
        session.attach(group, queue, 10).await;
        assert_eq!(session.take(queue, 1).await[0].2, "now");
        assert_eq!(session.take(queue, 1).await[0].2, "later");
        // It was logged somewhen between these two.
        assert!(
            published.elapsed() + Duration::from_millis(5) >= delay,
            "{:?}",
            published.elapsed()
        );
        assert!(confirmed.elapsed() < delay + TIMEOUT / 4, "{:?}", confirmed.elapsed());
    });
    cluster.stop();
}

#[test]
fn dead_messages_wait_through_a_restart_for_a_dead_letter_worker_that_has_stored_them() {
    let directory = Directory::new("dead");
    let arguments = [("x-message-ttl", Value::I32(30)), ("x-dead-letter-exchange", text("dead"))];
    let cluster = node(&directory.0);
    run(async {
        let mut dead_letter_worker = Session::open_dead_letter_worker(&cluster);
        let mut session = Session::open(&cluster);
        let place = session.declare_with("short-lived", true, &arguments).await;
        session.publish(place.1, place.0, &["a", "b", "c"]).await;
        let (leaving, bodies) = dead_letter_worker.next_leaving().await;
        assert_eq!(
            (leaving.reason, &bodies[..]),
            (Outcome::Expired, &["a", "b", "c"].map(String::from)[..])
        );
        dead_letter_worker.settle(place, 1..2, Outcome::DeadLettered).await;
        // It is logged before this: both are of one group, in order.
        while session.status(place).await.leaving > 2 {}
        session.publish(place.1, place.0, &[]).await;
        assert_eq!(cluster.session_count(), 1, "a dead-letter worker is no client");
    });
    cluster.stop();
    let cluster = node(&directory.0);
    run(async {
        let mut session = Session::open(&cluster);
        let place = session.declare_with("short-lived", true, &arguments).await;
        assert_eq!(session.status(place).await.leaving, 2);
        // One dead-letter worker after the other is told.
        for _ in 0..2 {
            let mut dead_letter_worker = Session::open_dead_letter_worker(&cluster);
            let (_, bodies) = dead_letter_worker.next_leaving().await;
            assert_eq!(bodies, ["b", "c"]);
        }
        let mut dead_letter_worker = Session::open_dead_letter_worker(&cluster);
        dead_letter_worker.next_leaving().await;
        dead_letter_worker.settle(place, 2..4, Outcome::DeadLettered).await;
        while session.status(place).await.leaving > 0 {}
        assert_eq!(session.status(place).await.counters.dead_lettered, 3);
    });
    cluster.stop();
}

#[test]
fn limits_priorities_and_counts_of_returns_are_there_after_a_restart() {
    let directory = Directory::new("limits");
    // Once it is given back, once its session ends; the third time is too often.
    let tried = [("x-queue-type", text("quorum")), ("x-delivery-limit", Value::I32(2))];
    let short = [("x-max-length", Value::I32(2))];
    let strict = [("x-max-length", Value::I32(1)), ("x-overflow", text("reject-publish"))];
    let urgent = [("x-max-priority", Value::I32(9))];
    let cluster = node(&directory.0);
    run(async {
        let mut session = Session::open(&cluster);
        let tried = session.declare_with("tried", true, &tried).await;
        session.publish(tried.1, tried.0, &["poison", "fine"]).await;
        session.attach(tried.1, tried.0, 1).await;
        assert_eq!(session.take(tried.0, 1).await[0].2, "poison");
        session.settle(tried, 1..2, Outcome::Requeue).await;
        assert_eq!(session.take(tried.0, 1).await[0].2, "poison");
        let short = session.declare_with("short", true, &short).await;
        session.publish(short.1, short.0, &["a", "b", "c"]).await;
        assert_eq!(session.status(short).await.ready, 2);
        let strict = session.declare_with("strict", true, &strict).await;
        session.publish(strict.1, strict.0, &["a"]).await;
        let urgent = session.declare_with("urgent", true, &urgent).await;
        session.publish(urgent.1, urgent.0, &["low"]).await;
        session.publish(urgent.1, urgent.0.level(9), &["high"]).await;
    });
    cluster.stop();
    let cluster = node(&directory.0);
    run(async {
        let mut session = Session::open(&cluster);
        let mut dead_letter_worker = Session::open_dead_letter_worker(&cluster);
        let tried = session.declare_with("tried", true, &tried).await;
        session.attach(tried.1, tried.0, 1).await;
        assert_eq!(session.take(tried.0, 1).await[0].2, "poison");
        session.settle(tried, 1..2, Outcome::Requeue).await;
        assert_eq!(session.take(tried.0, 1).await[0].2, "fine", "the other came back too often");
        let (leaving, bodies) = dead_letter_worker.next_leaving().await;
        assert_eq!((leaving.reason, &bodies[0][..]), (Outcome::Exhausted, "poison"));
        let short = session.declare_with("short", true, &short).await;
        let status = session.status(short).await;
        assert_eq!((status.ready, status.counters.dropped), (2, 1));
        let (queue, group) = session.declare_with("strict", true, &strict).await;
        let (ticket, sizes) = (Ticket(4), vec![1]);
        session.ask(Request::Admit { ticket, group, queue, sizes }).await;
        let answer = session.next().await;
        assert!(
            matches!(&answer, Answer::Admitted { refused, .. } if *refused == [0]),
            "{answer:?}"
        );
        let urgent = session.declare_with("urgent", true, &urgent).await;
        session.attach(urgent.1, urgent.0, 1).await;
        assert_eq!(session.take(urgent.0.level(9), 1).await[0].2, "high");
        session.settle((urgent.0.level(9), urgent.1), 1..2, Outcome::Done).await;
        assert_eq!(session.take(urgent.0, 1).await[0].2, "low");
    });
    cluster.stop();
}

#[test]
fn delayed_messages_all_over_a_backlog_come_in_their_time() {
    let directory = Directory::new("sparse");
    const COUNT: u64 = 3000;
    let filler = "x".repeat(1000);
    let cluster = node(&directory.0);
    run(async {
        let mut session = Session::open(&cluster);
        let (queue, group) = session.declare("later").await;
        for nth in 0..COUNT {
            let delay_ms = Some(2500 + (nth * 7919) % COUNT);
            let mut batch = Batch::new();
            let attributes = Attributes { delay_ms, ..Attributes::default() };
            let body = format!("{nth}-{filler}");
            batch.enqueue_with(&[queue], &attributes, &[], body.as_bytes());
            let (ticket, settles) = (Ticket(2), Vec::new());
            session.ask(Request::Append { group, ticket, batch, settles }).await;
        }
        for _ in 0..COUNT {
            assert!(matches!(session.next().await, Answer::Appended { .. }));
        }
        session.attach(group, queue, u32::MAX).await;
        let mut seen = std::collections::BTreeSet::new();
        while (seen.len() as u64) < COUNT {
            for (seq, _, body) in session.take(queue, 1).await {
                assert!(body.starts_with(&format!("{}-", seq - 1)));
                assert!(seen.insert(seq));
            }
        }
    });
    cluster.stop();
}

/// The segments below `directory`, and where `body` stands in each.
fn in_segments(directory: &std::path::Path, body: &[u8]) -> Vec<(std::path::PathBuf, usize)> {
    let mut found = Vec::new();
    for group in std::fs::read_dir(directory.join("groups")).unwrap() {
        for file in std::fs::read_dir(group.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            let is_segment = path.file_name().unwrap().to_str().unwrap().starts_with("seg-");
            // It may be gone by now.
            let bytes = std::fs::read(&path).ok().filter(|_| is_segment).unwrap_or_default();
            let at = bytes.windows(body.len()).position(|window| window == body);
            found.extend(at.map(|at| (path, at)));
        }
    }
    found
}

#[test]
fn a_damaged_message_stops_its_queue_and_neither_its_neighbours_nor_the_node() {
    let directory = Directory::new("damaged");
    let filler = "x".repeat(10_000);
    let cluster = node(&directory.0);
    let (bad, good) = run(async {
        let mut session = Session::open(&cluster);
        let bad = session.declare("bad").await;
        let good = session.declare("good").await;
        let busy = session.declare("busy").await;
        session.publish(bad.1, bad.0, &["one", "to-be-damaged", "three"]).await;
        session.publish(good.1, good.0, &["first", "second"]).await;
        let begun = Instant::now();
        while in_segments(&directory.0, b"to-be-damaged").is_empty()
            || in_segments(&directory.0, b"second").is_empty()
        {
            assert!(begun.elapsed() < TIMEOUT, "they are not moved to segments");
            session.publish(busy.1, busy.0, &[&filler[..]; 20]).await;
        }
        (bad, good)
    });
    cluster.stop();
    for (path, at) in in_segments(&directory.0, b"to-be-damaged") {
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[at] ^= 1;
        std::fs::write(&path, bytes).unwrap();
    }
    // A failure of the disk would be a panic here.
    let cluster = node(&directory.0);
    run(async {
        let mut broken = Session::open(&cluster);
        let before = cluster.peek((bad.1, bad.0), look(1, 9)).await.unwrap();
        assert_eq!(before.messages[0].body, "one");
        let damaged = cluster.peek((bad.1, bad.0), look(3, 9)).await;
        assert_eq!(damaged, Err(NotPeeked::Unreadable), "who looks is told, and nobody else");
        broken.attach(bad.1, bad.0, 10).await;
        let mut session = Session::open(&cluster);
        session.attach(good.1, good.0, 10).await;
        let taken = session.take(good.0, 2).await;
        let bodies: Vec<_> = taken.iter().map(|(_, _, body)| &body[..]).collect();
        assert_eq!(bodies, ["first", "second"]);
        session.publish(bad.1, bad.0, &["what comes is stored all the same"]).await;
    });
    cluster.stop();
    let report = wal::inspect(&wal::FileDisk::existing(&directory.0).unwrap(), true).unwrap();
    let lost: Vec<_> = report.groups.iter().flat_map(|group| &group.lost).collect();
    let [lost] = lost[..] else { panic!("{lost:?}") };
    assert_eq!((lost.queue, lost.of), (bad.0.0, 3));
}

#[test]
fn damage_in_a_message_of_several_queues_stops_and_names_these_and_no_other() {
    let directory = Directory::new("damaged-shared");
    let filler = "x".repeat(10_000);
    let body = format!("to-be-damaged{}", "y".repeat(1000));
    let cluster = node(&directory.0);
    let (fan, good, group) = run(async {
        let mut session = Session::open(&cluster);
        let busy = session.declare("busy").await;
        let (mut same, group) = (Vec::new(), busy.1);
        for number in 0.. {
            let (queue, of) = session.declare(&format!("queue-{number}")).await;
            same.extend((of == group).then_some(queue));
            if same.len() == 4 {
                break;
            }
        }
        let good = same.pop().unwrap();
        session.publish(group, good, &["first", "second"]).await;
        let mut batch = Batch::new();
        batch.enqueue_with(&same, &Attributes::default(), &[], body.as_bytes());
        session.ask(Request::Append { group, ticket: Ticket(2), batch, settles: Vec::new() }).await;
        assert!(matches!(session.next().await, Answer::Appended { .. }));
        let begun = Instant::now();
        while in_segments(&directory.0, body.as_bytes()).is_empty() {
            assert!(begun.elapsed() < TIMEOUT, "it is not moved to a segment");
            session.publish(group, busy.0, &[&filler[..]; 20]).await;
        }
        (same, good, group)
    });
    cluster.stop();
    // Each of them gets it from there.
    let cluster = node(&directory.0);
    run(async {
        for queue in &fan {
            let mut session = Session::open(&cluster);
            session.attach(group, *queue, 10).await;
            let taken = session.take(*queue, 1).await;
            assert_eq!(taken[0].2, body);
        }
    });
    cluster.stop();
    for (path, at) in in_segments(&directory.0, body.as_bytes()) {
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[at] ^= 1;
        std::fs::write(&path, bytes).unwrap();
    }
    let cluster = node(&directory.0);
    run(async {
        for queue in &fan {
            Session::open(&cluster).attach(group, *queue, 10).await;
        }
        let mut session = Session::open(&cluster);
        session.attach(group, good, 10).await;
        let taken = session.take(good, 2).await;
        assert_eq!((&taken[0].2[..], &taken[1].2[..]), ("first", "second"));
        session.publish(group, fan[0], &["what comes is stored all the same"]).await;
    });
    cluster.stop();
    let report = wal::inspect(&wal::FileDisk::existing(&directory.0).unwrap(), true).unwrap();
    let lost = report.groups.iter().flat_map(|group| &group.lost);
    let lost: Vec<_> = lost.map(|lost| (QueueId(lost.queue), lost.of)).collect();
    assert_eq!(lost, fan.iter().map(|queue| (*queue, 1)).collect::<Vec<_>>());
}

#[test]
fn a_node_describes_its_queues_and_what_it_has_and_a_question_leaves_nothing_behind() {
    let directory = Directory::new("described");
    let cluster = node(&directory.0);
    run(async {
        let mut session = Session::open(&cluster);
        let (queue, group) = session.declare("orders").await;
        session.publish(group, queue, &["a", "b"]).await;
        let open = cluster.session_count();
        let told = cluster.describe(&[(group, queue), (group, QueueId(999))]).await;
        let [Ok(described), Err(NotDescribed::NoQueue)] = &told[..] else { panic!("{told:?}") };
        assert_eq!((described.queue.status.ready, described.queue.kept), (2, 2));
        assert_eq!((described.leader.0, described.voters.len()), (1, 1));
        assert_eq!(cluster.session_count(), open);
    });
    let resources = cluster.resources();
    assert!(resources.memory_bytes > Some(0) && resources.disk_free_bytes > Some(0));
    cluster.stop();
}
