//! Real threads and files for longer: the log goes round, and the disk does not fill.
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

use std::collections::BTreeMap;
use std::path::Path;

use cluster::{Answer, Delivery, Request, Ticket};
use directory::{Directory, node};
use machine::{
    Batch, ConsumerId, ConsumerSpec, GroupId, Messages, Outcome, QueueId, QueueStatus, Ranges,
};
use session::{Session, run};

type Place = (QueueId, GroupId);

/// Queues whose messages are consumed as they come.
const BUSY: usize = 12;
/// Queues without a consumer, and one whose consumer acknowledges nothing.
const STUCK: usize = 6;
const ROUNDS: usize = 150;
/// Each round: bytes for each busy queue.
const ROUND_BYTES: usize = 24 * 1024;
/// Of the log: what is kept, the active file, prepared and spare ones, and some that the flusher has
/// yet to see.
const LOG_BYTES_MAX: u64 = 12 << 20;

impl Session {
    async fn appended(&mut self, count: usize) {
        for _ in 0..count {
            let answer = self.next().await;
            assert!(matches!(answer, Answer::Appended { .. }), "{answer:?}");
        }
    }

    async fn attach(&mut self, (queue, group): Place, number: u64, credit: u32) -> ConsumerId {
        let consumer = ConsumerId { session: self.id, number };
        let spec = ConsumerSpec { credit, ..ConsumerSpec::default() };
        self.ask(Request::Attach { ticket: Ticket(3), group, queue, consumer, spec }).await;
        consumer
    }

    async fn status(&mut self, (queue, group): Place) -> QueueStatus {
        self.ask(Request::Status { ticket: Ticket(4), group, queue }).await;
        match self.next().await {
            Answer::Status { status, .. } => status.unwrap(),
            other => panic!("no status: {other:?}"),
        }
    }
}

fn append((queue, group): Place, bodies: &[String]) -> Request {
    let mut batch = Batch::new();
    for body in bodies {
        batch.enqueue(&[queue], &[b"head"], body.as_bytes());
    }
    Request::Append { group, ticket: Ticket(2), batch, settles: Vec::new() }
}

fn done(delivery: &Delivery) -> Request {
    let Delivery { group, queue, consumer, first_seq, count, .. } = *delivery;
    let ranges = Ranges::from(first_seq..first_seq + u64::from(count));
    Request::Settle { group, queue, consumer, ranges, outcome: Outcome::Done, credit: count }
}

fn bodies(delivery: &Delivery) -> Vec<String> {
    let messages = Messages::of(delivery.store, &delivery.bytes);
    messages.map(|(_, body)| String::from_utf8(body.to_vec()).unwrap()).collect()
}

fn bytes_in(path: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(path) else { return 0 };
    let bytes = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => bytes_in(&entry.path()),
        Ok(found) => found.len(),
        // It was recycled meanwhile.
        Err(_) => 0,
    };
    entries.map_while(Result::ok).map(bytes).sum()
}

/// Publishes to every busy queue, and waits until all of it is confirmed, consumed and settled.
async fn round(nth: usize, busy: &[Place], publisher: &mut Session, consumer: &mut Session) {
    let body = |part| format!("{nth}-{part}-{}", "x".repeat(1000));
    let count = ROUND_BYTES / 1000;
    let requests: Vec<String> = (0..count).map(body).collect();
    publisher.ask_all(busy.iter().map(|place| append(*place, &requests)).collect()).await;
    publisher.appended(busy.len()).await;
    let mut left = busy.len() * count;
    while left > 0 {
        let Answer::Delivered(delivery) = consumer.next().await else { continue };
        left -= delivery.count as usize;
        consumer.ask(done(&delivery)).await;
    }
}

#[test]
fn stuck_queues_do_not_keep_the_log_and_their_messages_outlive_it() {
    let directory = Directory::new("long-log");
    let cluster = node(&directory.0);
    let places = run(async {
        let mut publisher = Session::open(&cluster);
        let mut consumer = Session::open(&cluster);
        let (mut busy, mut stuck) = (Vec::new(), Vec::new());
        for nth in 0..BUSY {
            let place = publisher.declare(&format!("busy-{nth}")).await;
            consumer.attach(place, nth as u64, 1000).await;
            busy.push(place);
        }
        for nth in 0..STUCK {
            stuck.push(publisher.declare(&format!("stuck-{nth}")).await);
        }
        let mut holder = Session::open(&cluster);
        holder.attach(stuck[0], 1, 1000).await;
        for nth in 0..ROUNDS {
            round(nth, &busy, &mut publisher, &mut consumer).await;
            let message = [format!("kept {nth}")];
            publisher.ask_all(stuck.iter().map(|place| append(*place, &message)).collect()).await;
            publisher.appended(stuck.len()).await;
        }
        // The flusher follows the log; give it work to follow, not time.
        let mut more = ROUNDS;
        while bytes_in(&directory.0.join("wal")) > LOG_BYTES_MAX {
            assert!(more < 3 * ROUNDS, "{} bytes of log", bytes_in(&directory.0.join("wal")));
            round(more, &busy, &mut publisher, &mut consumer).await;
            more += 1;
        }
        (busy, stuck)
    });
    let written = cluster.counters().log_bytes.load(std::sync::atomic::Ordering::Relaxed);
    assert!(written > 3 * LOG_BYTES_MAX, "the log went round: {written} bytes");
    assert!(bytes_in(&directory.0.join("groups")) < 4 << 20, "what is stuck is small");
    cluster.stop();

    let (busy, stuck) = places;
    let cluster = node(&directory.0);
    run(async {
        let mut session = Session::open(&cluster);
        for place in busy {
            let status = session.status(place).await;
            assert_eq!(status.ready, 0, "what was settled before the stop is logged");
        }
        let (mut expected, held) = (BTreeMap::new(), stuck[0].0);
        for (nth, place) in stuck.into_iter().enumerate() {
            session.attach(place, nth as u64, 10_000).await;
            expected.insert(place.0, 0);
        }
        let mut left = STUCK * ROUNDS;
        while left > 0 {
            let Answer::Delivered(delivery) = session.next().await else { continue };
            let is_flagged = delivery.queue == held;
            assert_eq!(delivery.redelivered, is_flagged, "what a client may have seen is flagged");
            let next = expected.get_mut(&delivery.queue).unwrap();
            for body in bodies(&delivery) {
                assert_eq!(body, format!("kept {next}"));
                *next += 1;
                left -= 1;
            }
        }
    });
    cluster.stop();
}

#[test]
fn what_was_taken_before_a_stop_is_synced_and_answered() {
    let directory = Directory::new("stop");
    let cluster = node(&directory.0);
    let place = run(async {
        let mut session = Session::open(&cluster);
        let place = session.declare("orders").await;
        for nth in 0..50 {
            session.ask(append(place, &[format!("{nth}")])).await;
        }
        cluster.stop();
        session.appended(50).await;
        assert!(session.is_over().await, "and then nothing");
        assert!(!cluster.submit(session.id, &mut vec![append(place, &[])]).await);
        place
    });
    let cluster = node(&directory.0);
    let status = run(async { Session::open(&cluster).status(place).await });
    assert_eq!(status.ready, 50);
    cluster.stop();
}

#[test]
fn a_goodbye_comes_after_everything_that_was_asked_before_it_in_every_shard() {
    let directory = Directory::new("goodbye");
    let cluster = node(&directory.0);
    run(async {
        let mut control = Session::open(&cluster);
        let mut places = Vec::new();
        for nth in 0..4 {
            places.push(control.declare(&format!("queue-{nth}")).await);
        }
        for nth in 0..50 {
            let mut session = Session::open(&cluster);
            let attach = |(number, (queue, group)): (u64, Place)| Request::Attach {
                ticket: Ticket(number),
                group,
                queue,
                consumer: ConsumerId { session: session.id, number },
                spec: ConsumerSpec::default(),
            };
            let mut requests: Vec<Request> =
                (1..).zip(places.iter().copied()).map(attach).collect();
            let ticket = Ticket(nth);
            requests.push(Request::EndSession { ticket });
            session.ask_all(requests).await;
            loop {
                match session.next().await {
                    Answer::Attached { .. } => {}
                    Answer::SessionEnded { ticket: ended } => break assert_eq!(ended, ticket),
                    other => panic!("{other:?}"),
                }
            }
            for place in &places {
                assert_eq!(control.status(*place).await.consumers, 0);
            }
        }
    });
    cluster.stop();
}
