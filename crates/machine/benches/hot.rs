//! What the hot paths cost: `cargo bench -p machine`. Prints nanoseconds, checks nothing.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![allow(clippy::print_stdout, reason = "a benchmark prints")]
#![allow(clippy::unwrap_used, reason = "a benchmark stops where it is wrong")]

use std::hint::black_box;
use std::time::Instant;

use machine::{
    Applied, Arguments, Batch, BindingChange, Catalog, CatalogCommand, ConsumerId, ConsumerSpec,
    Destination, ENTRY_HEAD_BYTES, Effect, Messages, NoHeaders, NodeId, Outcome, ProducerId,
    QueueId, QueueMachine, QueueSettings, Ranges, SessionId, SessionOwner, Version, check_commands,
};

/// The best of several rounds, per item.
fn measure(what: &str, items: u64, mut round: impl FnMut()) {
    let mut best = f64::MAX;
    for _ in 0..30 {
        let start = Instant::now();
        for _ in 0..20 {
            round();
        }
        best = best.min(start.elapsed().as_nanos() as f64 / 20.0 / items as f64);
    }
    println!("{what:<60} {best:>8.1} ns");
}

fn consumer(number: u64) -> ConsumerId {
    ConsumerId { session: SessionId(1), number }
}

fn machine(queues: u64) -> QueueMachine {
    let mut machine = QueueMachine::new();
    machine.lead();
    machine.start_dispatch(&mut Vec::new());
    let mut batch = Batch::new();
    for queue in 1..=queues {
        batch.create_queue(QueueId(queue), &QueueSettings::default());
    }
    machine.apply(Applied { index: 1, time_ms: 0 }, &batch.stamp(0), &mut Vec::new()).unwrap();
    machine
}

fn entry(messages: u64, queues: impl Fn(u64) -> Vec<QueueId>) -> Vec<u8> {
    let mut batch = Batch::new();
    for number in 0..messages {
        batch.enqueue(&queues(number), &[b"\x00", b"\x06orders", &[0; 20]], &[0; 128]);
    }
    batch.stamp(0)
}

fn enqueues() {
    measure("Batch::enqueue, 128 B, per message", 300, || {
        black_box(entry(300, |_| vec![QueueId(1)]));
    });
    let mut at = Applied { index: 1, time_ms: 0 };
    let mut effects = Vec::new();
    let mut apply = |what: &str, machine: &mut QueueMachine, entry: &[u8], messages| {
        measure(what, messages, || {
            at.index += 1;
            machine.apply(at, entry, &mut effects).unwrap();
            black_box(&effects);
            effects.clear();
        });
    };
    let one = entry(300, |_| vec![QueueId(1)]);
    apply("apply 300 enqueues to one queue, per message", &mut machine(1), &one, 300);
    let producer = ProducerId { node: NodeId(1), boot: 1 };
    let mut batches = machine(1);
    let commands = one[ENTRY_HEAD_BYTES..].to_vec();
    let mut seq = 0;
    measure("one numbered batch of 300, appended and applied, per message", 300, || {
        seq += 1;
        let mut batch = Batch::new();
        batch.append_numbered(producer, seq, &commands);
        let at = Applied { index: seq, time_ms: 0 };
        batches.apply(at, &batch.stamp(0), &mut Vec::new()).unwrap();
    });
    measure("check_commands over 300, per message", 300, || {
        check_commands(black_box(&commands), false, Version::NEWEST).unwrap();
    });
    let of_100 = entry(300, |number| vec![QueueId(number % 100 + 1)]);
    apply("apply 300 enqueues to 100 queues in turn, per message", &mut machine(100), &of_100, 300);
    let fan_out = entry(300, |_| (1..=3).map(QueueId).collect());
    apply("apply 300 enqueues to 3 queues each, per copy", &mut machine(3), &fan_out, 900);
    measure("Messages::of over 300, per message", 300, || {
        black_box(Messages::of(QueueId(1), &one[16..]).count());
    });
}

/// Everything but the log: enqueue, deliver, settle, log the settles.
fn round_trips() {
    for consumers in [1, 4] {
        let mut machine = machine(1);
        let entry = entry(300, |_| vec![QueueId(1)]);
        let mut at = Applied { index: 1, time_ms: 0 };
        let mut effects = Vec::new();
        for number in 0..consumers {
            let spec = ConsumerSpec { credit: 1_000, ..Default::default() };
            machine.attach(QueueId(1), consumer(number), spec, &mut effects).unwrap();
        }
        let what = format!("enqueue, deliver, settle, log; {consumers} consumers, per message");
        measure(&what, 300, || {
            at.index += 1;
            machine.apply(at, &entry, &mut effects).unwrap();
            let delivered: Vec<_> = effects
                .drain(..)
                .filter_map(|effect| match effect {
                    Effect::Deliver { consumer, first_seq, count, .. } => {
                        Some((consumer, first_seq..first_seq + u64::from(count)))
                    }
                    _ => None,
                })
                .collect();
            for (consumer, range) in delivered {
                let count = (range.end - range.start) as u32;
                let ranges = Ranges::from(range);
                machine.settle(QueueId(1), consumer, &ranges, Outcome::Done, &mut effects);
                machine.credit(QueueId(1), consumer, count, &mut effects);
            }
            let mut batch = Batch::new();
            machine.take_settled(&mut batch);
            machine.apply(at, &batch.stamp(0), &mut effects).unwrap();
            effects.clear();
        });
    }
}

fn routes() {
    let mut catalog = Catalog::new(8);
    let by = SessionOwner { node: NodeId(1), session: SessionId(1) };
    let mut index = 0;
    let mut apply = |command| {
        index += 1;
        catalog.apply(Applied { index, time_ms: 0 }, command, &mut Vec::new());
    };
    for number in 0..1_000 {
        let name = format!("queue-{number}");
        apply(CatalogCommand::DeclareQueue {
            vhost: "/".into(),
            name: name.clone(),
            durable: true,
            auto_delete: false,
            exclusive: false,
            server_named: false,
            arguments: Arguments::new(),
            by,
        });
        for (source, key) in
            [("amq.topic", format!("event.{number}.*")), ("amq.direct", name.clone())]
        {
            apply(CatalogCommand::Bind(BindingChange {
                vhost: "/".into(),
                source: source.into(),
                destination: Destination::Queue(name.clone()),
                key,
                arguments: Arguments::new(),
                by: None,
            }));
        }
    }
    let mut out = Vec::new();
    for (what, exchange, key) in [
        ("route, default exchange, 1,000 queues", "", "queue-567"),
        ("route, direct, 1,000 bindings", "amq.direct", "queue-567"),
        ("route, topic, 1,000 bindings, one matches", "amq.topic", "event.567.created"),
    ] {
        measure(what, 100, || {
            for _ in 0..100 {
                catalog.route("/", exchange, key, &NoHeaders, &mut out).unwrap();
                assert_eq!(black_box(&out).len(), 1);
            }
        });
    }
}

fn main() {
    enqueues();
    round_trips();
    routes();
}
