//! What a leader says of a queue when it is asked to describe it.

use machine::limits::DESCRIBED_HOLDERS_MAX;
use machine::{
    Applied, Batch, ConsumerId, ConsumerSpec, Corrupt, Effect, Features, QueueDescription, QueueId,
    QueueMachine, QueueSettings, SessionId,
};

const Q: QueueId = QueueId(1);

fn consumer(session: u64) -> ConsumerId {
    ConsumerId { session: SessionId(session), number: 1 }
}

/// A leader with one queue, in which so many messages of ten bytes are.
fn leader(features: Features, messages: usize) -> QueueMachine {
    let (mut machine, mut effects) = (QueueMachine::new(), Vec::new());
    machine.lead();
    machine.start_dispatch(&mut effects);
    let features = Some(Box::new(features));
    let mut batch = Batch::new();
    batch.create_queue(
        Q,
        &QueueSettings { is_durable: true, is_auto_delete: false, features, is_paused: false },
    );
    (0..messages).for_each(|_| batch.enqueue(&[Q], &[], b"ten bytes."));
    let at = Applied { index: 1, time_ms: 0 };
    machine.apply(at, &batch.stamp(0), &mut effects).expect("our entry");
    machine
}

fn attach(machine: &mut QueueMachine, session: u64, credit: u32) {
    let spec = ConsumerSpec { credit, ..ConsumerSpec::default() };
    let mut effects: Vec<Effect> = Vec::new();
    machine.attach(Q, consumer(session), spec, &mut effects).expect("it takes consumers");
}

fn described(machine: &QueueMachine) -> QueueDescription {
    machine.describe(Q).expect("it is there")
}

#[test]
fn a_description_says_who_holds_what() {
    let mut machine = leader(Features::default(), 5);
    attach(&mut machine, 7, 3);
    machine.get(Q, consumer(8), false, &mut Vec::new());
    let before = format!("{machine:?}");
    let described = described(&machine);
    assert_eq!(format!("{machine:?}"), before, "nothing is changed");
    let status = described.status;
    assert_eq!((status.ready, status.unsettled, status.consumers), (1, 4, 1));
    assert_eq!((described.kept, described.holder_count, described.ready_bytes), (5, 2, None));
    let [first, second] = described.holders[..] else { panic!("{described:?}") };
    assert_eq!((first.consumer, first.held, first.credit), (consumer(7), 3, 0));
    assert_eq!((second.consumer, second.held, second.is_attached), (consumer(8), 1, false));
    assert_eq!(machine.describe(QueueId(9)), None);
}

#[test]
fn a_description_says_which_consumer_is_the_active_one() {
    let features = Features { single_active: true, ..Features::default() };
    let mut machine = leader(features, 1);
    attach(&mut machine, 9, 10);
    attach(&mut machine, 7, 10);
    let active = described(&machine).holders.into_iter().filter(|holder| holder.is_active);
    let active: Vec<_> = active.map(|holder| holder.consumer).collect();
    assert_eq!(active, [consumer(9)], "who came first");
}

#[test]
fn bytes_are_described_where_they_are_counted() {
    let features = Features { max_length_bytes: Some(1000), ..Features::default() };
    assert_eq!(described(&leader(features, 3)).ready_bytes, Some(30));
}

#[test]
fn a_description_is_bounded_however_many_consume() {
    let mut machine = leader(Features::default(), 0);
    let count = DESCRIBED_HOLDERS_MAX as u64 + 1;
    (1..=count).for_each(|session| attach(&mut machine, session, 1));
    let described = described(&machine);
    assert_eq!(described.holders.len(), DESCRIBED_HOLDERS_MAX);
    assert_eq!((described.holder_count, u64::from(described.status.consumers)), (count, count));
    let mut bytes = Vec::new();
    described.encode(&mut bytes);
    assert!(bytes.len() < 8192, "{} bytes", bytes.len());
}

#[test]
fn a_description_arrives_as_it_was_sent_and_damage_is_noticed() {
    let mut machine = leader(Features { max_length_bytes: Some(9), ..Features::default() }, 3);
    attach(&mut machine, 7, 1);
    let described = described(&machine);
    let mut bytes = Vec::new();
    described.encode(&mut bytes);
    assert_eq!(QueueDescription::decode(&bytes), Ok(described));
    for end in 0..bytes.len() {
        assert!(QueueDescription::decode(&bytes[..end]).is_err(), "cut at {end}");
    }
    let refused = |bytes: &[u8]| -> Corrupt { QueueDescription::decode(bytes).unwrap_err() };
    assert!(!refused(&[&bytes[..], &[0]].concat()).is_newer);
    bytes[0] = 9;
    assert!(refused(&bytes).is_newer, "a form that is not known");
}
