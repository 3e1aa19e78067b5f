//! Rates: consumers are given messages when their time has come, and publishers are let in.

use machine::{
    Arguments, CatalogCommand, Features, QueueHome, QueueSettings, QueueSpec, QueueType, Rate,
    Rates, Version,
};

use super::*;

/// It publishes nothing.
const EVE: SessionId = SessionId(3);

type Place = (QueueId, GroupId);

fn rated(node: &mut Node, name: &str, rates: Rates) -> Place {
    let to = Version::RATES;
    let change = |command| Request::Catalog { ticket: Ticket(5), command };
    node.submit(ANN, change(CatalogCommand::RaiseVersion { to }));
    node.run_to_quiet();
    node.told(ANN);
    let features = Some(Box::new(Features { rates, ..Features::default() }));
    let settings = QueueSettings { is_durable: true, features, ..QueueSettings::default() };
    let (dead_letter, consumer_timeout_ms, members) = (None, None, None);
    let queue_type = QueueType::Classic;
    let spec = QueueSpec {
        queue_type,
        settings,
        dead_letter,
        consumer_timeout_ms,
        members,
        partitions: 1,
    };
    let (vhost, name, home) = ("/".to_owned(), name.to_owned(), QueueHome::Group);
    let (spec, arguments) = (Box::new(spec), Arguments::new());
    node.submit(ANN, change(CatalogCommand::CreateQueue { vhost, name, home, spec, arguments }));
    node.run_to_quiet();
    match &node.told(ANN)[..] {
        [Answer::Catalog { reply: CatalogReply::QueueDeclared { queue, group, .. }, .. }] => {
            (*queue, *group)
        }
        other => panic!("not declared: {other:?}"),
    }
}

fn per_second(count: u64) -> Option<Rate> {
    Rate::new(count, 1_000)
}

/// Time passes, and the shard wakes when it wants to.
fn pass(node: &mut Node, ms: u64) {
    let end = node.ms + ms;
    while node.ms < end {
        node.ms += 1;
        node.step();
        node.sync(usize::MAX);
    }
}

fn admitted(answers: &[Answer]) -> Vec<u64> {
    let ticket = |answer: &Answer| match answer {
        Answer::Admitted { ticket, refused } if refused.is_empty() => Some(ticket.0),
        _ => None,
    };
    answers.iter().filter_map(ticket).collect()
}

fn admit(ticket: u64, (queue, group): Place, count: usize) -> Request {
    Request::Admit { ticket: Ticket(ticket), group, queue, sizes: vec![5; count] }
}

#[test]
fn a_consumer_is_given_messages_at_the_rate_of_its_queue_and_the_shard_wakes_by_itself() {
    let mut node = Node::new(1);
    let rates = Rates { dequeue: per_second(100), dequeue_burst: Some(2), ..Rates::default() };
    let place = rated(&mut node, "calls", rates);
    let texts: Vec<String> = (0..40).map(|number| number.to_string()).collect();
    texts.iter().for_each(|text| node.publish(ANN, place, &[text]));
    node.attach(BOB, place, credit(100));
    node.run_to_quiet();
    let first = node.got(BOB).len();
    assert!((2..=5).contains(&first), "{first}: a burst, and what the time since brought");
    let due = node.shard.deadline_ms();
    assert!(due <= node.ms + 10, "{due} at {}", node.ms);
    pass(&mut node, 100);
    assert_eq!(node.got(BOB).len(), 10);
    let held = node.status(place).unwrap();
    assert_eq!(held.unsettled, first as u64 + 10);
    pass(&mut node, 1_000);
    assert_eq!(node.got(BOB).len(), 40 - first - 10, "all that there are");
}

#[test]
fn publishers_are_let_in_one_after_the_other_and_those_to_other_queues_at_once() {
    let mut node = Node::new(1);
    let place = rated(&mut node, "slow", Rates { enqueue: per_second(100), ..Rates::default() });
    let other = node.declare(ANN, "other", Kind::default());
    node.ask(ANN, admit(11, place, 10));
    assert_eq!(admitted(&node.told(ANN)), [11], "a burst");
    node.ask(ANN, admit(12, place, 10));
    node.ask(BOB, admit(21, place, 5));
    node.ask(EVE, admit(31, place, 1));
    node.publish(ANN, other, &["not held back"]);
    assert!(node.told(ANN).iter().all(|answer| !matches!(answer, Answer::Admitted { .. })));
    pass(&mut node, 70);
    assert!(node.told(ANN).is_empty());
    pass(&mut node, 30);
    assert_eq!(admitted(&node.told(ANN)), [12]);
    assert!(node.told(BOB).is_empty(), "its turn is the next");
    // Who is gone is not waited for.
    node.inputs.push(Input::SessionGone { session: BOB });
    node.step();
    pass(&mut node, 11);
    assert_eq!((admitted(&node.told(EVE)), node.told(BOB).len()), (vec![31], 0));
}

#[test]
fn who_waits_for_a_queue_that_is_deleted_is_answered() {
    let mut node = Node::new(1);
    let rates = Rates { enqueue: Rate::new(1, 3_600_000), ..Rates::default() };
    let place = rated(&mut node, "slow", rates);
    node.ask(ANN, admit(11, place, 1));
    node.ask(BOB, admit(21, place, 1));
    assert_eq!(admitted(&node.told(ANN)), [11]);
    pass(&mut node, 3_000);
    assert!(node.told(BOB).is_empty());
    let (vhost, name) = ("/".to_owned(), "slow".to_owned());
    let command = CatalogCommand::DeleteQueue { vhost, name, queue: None, by: None };
    node.submit(ANN, Request::Catalog { ticket: Ticket(9), command });
    node.run_to_quiet();
    pass(&mut node, 1_001);
    assert_eq!(admitted(&node.told(BOB)), [21]);
}
