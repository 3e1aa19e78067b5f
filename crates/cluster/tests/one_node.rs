//! One node with real threads and real files: what goes in comes out, also after a restart.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "a test of the shell: it starts nodes in directories of its own"
)]

#[path = "common/directory.rs"]
mod directory;

use cluster::{Answer, AnswerReceiver, ClusterHandle, Request, Ticket};
use directory::{Directory, node};
use machine::{
    Arguments, Batch, CatalogCommand, CatalogReply, ConsumerId, ConsumerSpec, GroupId, Messages,
    Outcome, QueueId, Ranges, SessionId, SessionOwner,
};

/// A session that asks one thing at a time.
struct Session {
    cluster: ClusterHandle,
    id: SessionId,
    answers: AnswerReceiver,
    waiting: Vec<Answer>,
}

impl Session {
    fn open(cluster: &ClusterHandle) -> Self {
        let (id, answers) = cluster.open_session();
        Self { cluster: cluster.clone(), id, answers, waiting: Vec::new() }
    }

    async fn ask(&mut self, request: Request) {
        assert!(self.cluster.submit(self.id, &mut vec![request]).await);
    }

    async fn next(&mut self) -> Answer {
        while self.waiting.is_empty() {
            assert!(self.answers.recv(&mut self.waiting).await);
        }
        self.waiting.remove(0)
    }

    async fn declare(&mut self, name: &str, durable: bool) -> (QueueId, GroupId) {
        let command = CatalogCommand::DeclareQueue {
            vhost: "/".to_owned(),
            name: name.to_owned(),
            durable,
            auto_delete: false,
            exclusive: false,
            server_named: false,
            arguments: Arguments::new(),
            by: SessionOwner { node: self.cluster.node(), session: self.id },
        };
        self.ask(Request::Catalog { ticket: Ticket(1), command }).await;
        match self.next().await {
            Answer::Catalog { reply: CatalogReply::QueueDeclared { queue, group, .. }, .. } => {
                (queue, group)
            }
            other => panic!("not declared: {other:?}"),
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

fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}

#[test]
fn what_is_confirmed_and_not_settled_comes_again_after_a_restart_flagged() {
    let directory = Directory::new("restart");
    let (queue, group) = {
        let cluster = node(&directory.0);
        let mut place = None;
        run(async {
            let mut session = Session::open(&cluster);
            let (queue, group) = session.declare("orders", true).await;
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
        assert_eq!(session.declare("orders", true).await, (queue, group));
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
        let (queue, group) = session.declare("backlog", true).await;
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
        let (queue, group) = session.declare("backlog", true).await;
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

#[test]
fn a_queue_in_memory_returns_what_its_dead_consumer_held() {
    let directory = Directory::new("memory");
    let cluster = node(&directory.0);
    run(async {
        let mut owner = Session::open(&cluster);
        let (queue, group) = owner.declare("scratch", false).await;
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
