//! What the dead-letter worker does with what leaves.

use std::time::Duration;

use amqp::{FieldTable, FieldValue, Properties, TableRef, ValueRef};
use bytes::BytesMut;
use cluster::Answer;
use machine::{
    Arguments, BindingChange, CatalogCommand, CatalogReply, ExchangeKind, Outcome, QueueId, Ranges,
    Value,
};

use super::super::{Fate, Forwarded, Input, forward, limits};
use super::world::{DEAD_LETTER_WORKER, Stored, World, head, head_with, text};
use crate::stored::{destination_texts, split_head};

fn none() -> Arguments {
    Arguments::new()
}

/// Exchange and key of a stored message.
fn destination(stored: &Stored) -> (String, String) {
    let (destination, _) = split_head(&stored.head).unwrap();
    let (exchange, key) = destination_texts(destination);
    (exchange.to_owned(), key.to_owned())
}

fn bodies(all: &[Stored]) -> Vec<&str> {
    all.iter().map(|stored| std::str::from_utf8(&stored.body).unwrap()).collect()
}

#[test]
fn a_source_lets_go_only_when_every_target_has_it() {
    let mut world = World::new();
    let source = world.source("source", "fan", None);
    let targets = [world.queue("one", none()), world.queue("two", none())];
    world.exchange("fan", ExchangeKind::Fanout, none());
    world.bind("fan", "", "one", none());
    world.bind("fan", "", "two", none());
    assert_ne!(world.group(targets[0]), world.group(targets[1]));
    world.leave(source, Outcome::Rejected, 5, &["a", "b"]);
    let appends = world.take_appends();
    assert_eq!(appends.len(), 2, "one for each group");
    for (_, stored) in &appends {
        assert_eq!(bodies(stored), ["a", "b"]);
        assert_eq!(destination(&stored[0]), ("fan".to_owned(), "key".to_owned()));
    }
    assert_eq!(world.take_settles(), []);
    world.answer(Answer::Appended { ticket: appends[1].0 });
    assert_eq!(world.take_settles(), []);
    world.answer(Answer::Appended { ticket: appends[0].0 });
    assert_eq!(world.take_settles(), [(source, Ranges::from(5..7))]);
    assert!(world.worker.deadline().is_none());
}

#[test]
fn what_a_group_does_not_take_is_sent_to_it_again_and_again_in_order() {
    let mut world = World::new();
    let source = world.source("source", "", Some("target"));
    let target = world.queue("target", none());
    world.leave(source, Outcome::Expired, 1, &["a"]);
    let (first, _) = world.take_appends().remove(0);
    world.leave(source, Outcome::Expired, 2, &["b"]);
    let (second, _) = world.take_appends().remove(0);
    world.answer(Answer::AppendFailed { ticket: second });
    world.answer(Answer::AppendFailed { ticket: first });
    world.leave(source, Outcome::Expired, 3, &["c"]);
    assert_eq!(world.take_appends(), [], "the group rests");
    for _ in 0..3 {
        assert!(world.worker.deadline().is_some());
        world.later(limits::RETRY);
        let appends = world.take_appends();
        let all: Vec<Stored> = appends.iter().flat_map(|(_, stored)| stored.clone()).collect();
        assert_eq!(bodies(&all), ["a", "b", "c"]);
        assert!(all.iter().all(|stored| stored.queues == [target]));
        for (ticket, _) in appends {
            world.answer(Answer::AppendFailed { ticket });
        }
        assert_eq!(world.take_settles(), []);
    }
    world.later(limits::RETRY);
    assert_eq!(bodies(&world.carry()), ["a", "b", "c"]);
    assert_eq!(world.take_settles().len(), 3);
    assert_eq!(world.worker.take_counts().retries, 12);
}

#[test]
fn a_group_that_takes_nothing_does_not_hold_others_up() {
    let mut world = World::new();
    let stuck = world.source("stuck", "", Some("one"));
    let other = world.source("other", "", Some("two"));
    world.queue("one", none());
    world.queue("two", none());
    world.leave(stuck, Outcome::Rejected, 1, &["a"]);
    let (ticket, _) = world.take_appends().remove(0);
    world.answer(Answer::AppendFailed { ticket });
    world.leave(other, Outcome::Rejected, 1, &["b"]);
    assert_eq!(bodies(&world.carry()), ["b"]);
    assert_eq!(world.take_settles(), [(other, Ranges::from(1..2))]);
}

#[test]
fn what_is_with_the_dead_letter_worker_when_its_queue_goes_is_stored_all_the_same() {
    let mut world = World::of_two_nodes();
    let source = world.source("source", "", Some("target"));
    world.leave(source, Outcome::Rejected, 1, &["a"]);
    let (ticket, _) = world.take_changes().remove(0);
    world.delete_queue("source");
    world.queue("target", none());
    world.answer(Answer::Catalog { ticket, reply: CatalogReply::Done });
    assert_eq!(bodies(&world.carry()), ["a"]);
}

#[test]
fn letters_for_a_queue_that_is_gone_for_good_are_not_sent_for_ever() {
    let mut world = World::new();
    let source = world.source("source", "fan", None);
    world.exchange("fan", ExchangeKind::Fanout, none());
    for name in ["gone", "there"] {
        world.queue(name, none());
        world.bind("fan", "", name, none());
    }
    world.leave(source, Outcome::Rejected, 1, &["a"]);
    let gone = world.catalog.queue("/", "gone").unwrap().id;
    for (ticket, stored) in world.take_appends() {
        if stored[0].queues == [gone] {
            world.answer(Answer::AppendFailed { ticket });
        } else {
            world.answer(Answer::Appended { ticket });
        }
    }
    assert_eq!(world.take_settles(), []);
    world.delete_queue("gone");
    world.later(limits::RETRY);
    let (ticket, _) = world.take_appends().remove(0);
    world.answer(Answer::AppendFailed { ticket });
    assert_eq!(world.take_settles(), [(source, Ranges::from(1..2))]);
    assert_eq!(world.worker.deadline(), None);
}

#[test]
fn a_catalog_that_cannot_answer_is_asked_again_later() {
    let mut world = World::of_two_nodes();
    let source = world.source("source", "", Some("missing"));
    world.leave(source, Outcome::Rejected, 1, &["a"]);
    for _ in 0..3 {
        let (ticket, _) = world.take_changes().remove(0);
        world.answer(Answer::AppendFailed { ticket });
        assert_eq!((world.take_changes(), world.take_settles()), (vec![], vec![]));
        world.later(limits::RETRY);
    }
    let (ticket, _) = world.take_changes().remove(0);
    world.answer(Answer::Catalog { ticket, reply: CatalogReply::Done });
    assert_eq!(world.take_settles(), [(source, Ranges::from(1..2))]);
}

#[test]
fn a_queue_that_was_changed_sends_its_dead_letters_where_the_change_says() {
    let mut world = World::of_two_nodes();
    world.raise_version();
    let source = world.queue("source", none());
    let target = world.queue("target", none());
    // Its leader has heard of the change, and this node's catalog has not.
    world.leave(source, Outcome::Rejected, 1, &["a"]);
    let (ticket, _) = world.take_changes().remove(0);
    world.send_dead_letters_to("source", "", "target");
    world.answer(Answer::Catalog { ticket, reply: CatalogReply::Done });
    let all = world.carry();
    assert_eq!((bodies(&all), &all[0].queues[..]), (vec!["a"], &[target][..]));
    assert_eq!(world.take_settles(), [(source, Ranges::from(1..2))]);
}

#[test]
fn messages_of_a_queue_that_is_gone_are_let_go() {
    let mut world = World::new();
    let source = world.source("source", "", Some("source"));
    world.delete_queue("source");
    world.leave(source, Outcome::Rejected, 1, &["a"]);
    assert_eq!(world.take_appends(), []);
    assert_eq!(world.take_settles(), [(source, Ranges::from(1..2))]);
}

#[test]
fn messages_of_a_queue_that_this_node_does_not_know_yet_wait_for_it() {
    let mut world = World::new();
    world.queue("target", none());
    let source = QueueId(world.catalog.next_queue());
    world.leave(source, Outcome::Rejected, 1, &["a"]);
    assert_eq!((world.take_appends(), world.take_settles()), (vec![], vec![]));
    assert_eq!(world.source("source", "", Some("target")), source);
    world.later(limits::LOOK_AGAIN);
    assert_eq!(bodies(&world.carry()), ["a"]);
    assert_eq!(world.take_settles(), [(source, Ranges::from(1..2))]);
}

#[test]
fn letters_that_nobody_takes_are_dropped_counted_and_told_of_once() {
    let mut world = World::new();
    let nowhere = world.source("nowhere", "", Some("missing"));
    let no_exchange = world.source("no-exchange", "missing", None);
    for seq in 1..=3 {
        world.leave(nowhere, Outcome::Rejected, seq, &["a"]);
        world.leave(no_exchange, Outcome::Expired, seq, &["b"]);
    }
    assert_eq!(world.take_appends(), []);
    assert_eq!(world.take_settles().len(), 6);
    let counts = world.worker.take_counts();
    assert_eq!((counts.unroutable, counts.dead), (6, [3, 3, 0, 0]));
    let told: Vec<_> = world.out.notices.drain(..).map(|notice| notice.fate).collect();
    assert_eq!(told, [Fate::Unroutable, Fate::NoExchange]);
    world.now += limits::NOTICE_INTERVAL;
    world.leave(nowhere, Outcome::Rejected, 4, &["a"]);
    let notice = world.out.notices.pop().unwrap();
    assert_eq!((notice.fate, notice.count), (Fate::Unroutable, 3));
    assert_eq!((&*notice.vhost, &*notice.queue), ("/", "nowhere"));
}

#[test]
fn before_a_letter_is_dropped_the_catalog_is_made_sure_to_be_fresh() {
    let mut world = World::of_two_nodes();
    let source = world.source("source", "", Some("target"));
    world.leave(source, Outcome::Rejected, 1, &["a", "b"]);
    assert_eq!((world.take_appends(), world.take_settles()), (vec![], vec![]));
    let (ticket, command) = world.take_changes().remove(0);
    let before = world.catalog.version();
    let reply = world.change(command);
    assert_eq!(world.catalog.version(), before, "the question changes nothing");
    // Another node had declared it before.
    let target = world.queue("target", none());
    world.answer(Answer::Catalog { ticket, reply });
    assert_eq!(bodies(&world.carry()), ["a", "b"]);
    assert_eq!(world.take_settles(), [(source, Ranges::from(1..3))]);
    world.delete_queue("target");
    world.leave(source, Outcome::Rejected, 3, &["c"]);
    world.leave(source, Outcome::Rejected, 4, &["d"]);
    let (ticket, _) = world.take_changes().remove(0);
    assert_eq!(world.take_settles(), []);
    world.answer(Answer::Catalog { ticket, reply: CatalogReply::Done });
    let (again, _) = world.take_changes().remove(0);
    assert_eq!(world.take_settles(), [(source, Ranges::from(3..4))], "d came after the question");
    world.answer(Answer::Catalog { ticket: again, reply: CatalogReply::Done });
    assert_eq!(world.take_settles(), [(source, Ranges::from(4..5))]);
    let _ = target;
}

#[test]
fn what_a_leader_hands_out_twice_is_sent_once() {
    let mut world = World::new();
    let source = world.source("source", "", Some("target"));
    world.queue("target", none());
    world.leave(source, Outcome::Rejected, 1, &["a", "b"]);
    world.leave(source, Outcome::Rejected, 1, &["a", "b", "c"]);
    assert_eq!(bodies(&world.carry()), ["a", "b", "c"]);
    let settled: u64 = world.take_settles().iter().map(|(_, ranges)| ranges.len()).sum();
    assert_eq!(settled, 3);
    world.leave(source, Outcome::Rejected, 1, &["a"]);
    assert_eq!(bodies(&world.carry()), ["a"], "settled and handed out again: it was not settled");
}

#[test]
fn messages_that_came_back_too_often_are_set_aside_if_nobody_said_where_they_go() {
    let mut world = World::new();
    let arguments = none().with("x-delivery-limit", Value::I64(1));
    let source = world.queue("jobs", arguments.with("x-queue-type", text("quorum")));
    world.leave(source, Outcome::Exhausted, 1, &["a"]);
    world.leave(source, Outcome::Exhausted, 2, &["b"]);
    assert_eq!(world.take_appends(), []);
    let mut changes = world.take_changes();
    assert_eq!(changes.len(), 1, "the queue is declared once");
    let (ticket, command) = changes.remove(0);
    assert!(matches!(&command, CatalogCommand::DeclareQueue { name, durable: true, .. }
        if name == "jobs.dead"));
    let reply = world.change(command);
    world.answer(Answer::Catalog { ticket, reply });
    let aside = world.catalog.queue("/", "jobs.dead").unwrap().id;
    let all = world.carry();
    assert_eq!(bodies(&all), ["a", "b"]);
    assert!(all.iter().all(|stored| stored.queues == [aside]));
    assert_eq!(destination(&all[0]), (String::new(), "jobs.dead".to_owned()));
    assert_eq!(world.take_settles().len(), 1);
    assert_eq!(world.worker.take_counts().aside, 2);
    assert_eq!(world.out.notices.pop().unwrap().fate, Fate::Aside);
}

#[test]
fn a_queue_that_cannot_be_declared_is_tried_again() {
    let mut world = World::new();
    let source = world.queue("jobs", none());
    world.leave(source, Outcome::Exhausted, 1, &["a"]);
    let (ticket, command) = world.take_changes().remove(0);
    world.answer(Answer::AppendFailed { ticket });
    assert_eq!((world.take_changes(), world.take_settles()), (vec![], vec![]));
    world.later(limits::RETRY);
    let (ticket, again) = world.take_changes().remove(0);
    assert_eq!(again, command);
    let reply = world.change(again);
    world.answer(Answer::Catalog { ticket, reply });
    assert_eq!(bodies(&world.carry()), ["a"]);
}

#[test]
fn a_letter_goes_by_all_of_its_keys_and_by_the_alternate_only_if_none_leads_anywhere() {
    let mut world = World::new();
    let source = world.source("source", "direct", None);
    for queue in ["one", "other"] {
        world.queue(queue, none());
    }
    world.exchange("other", ExchangeKind::Fanout, none());
    world.bind("other", "", "other", none());
    world.exchange(
        "direct",
        ExchangeKind::Direct,
        none().with("alternate-exchange", text("other")),
    );
    world.bind("direct", "cc", "one", none());
    let cc = FieldValue::Array(vec![FieldValue::LongStr(b"cc".into())]);
    let headers = FieldTable(vec![("CC".into(), cc)]);
    let messages = [(head("", "source", Some(&headers)), "copied"), (head("", "x", None), "plain")];
    let leaving = world.leaving(source, Outcome::Rejected, 1, &messages);
    world.answer(Answer::Leaving(leaving));
    let all = world.carry();
    let queue = |name: &str| world.catalog.queue("/", name).unwrap().id;
    let mut to: Vec<_> = all
        .iter()
        .map(|stored| (bodies(std::slice::from_ref(stored))[0], &stored.queues))
        .collect();
    to.sort_unstable();
    assert_eq!(to, [("copied", &vec![queue("one")]), ("plain", &vec![queue("other")])]);
}

#[test]
fn a_letter_is_routed_by_the_headers_that_tell_of_its_death() {
    let mut world = World::new();
    let source = world.source("source", "by-reason", None);
    world.queue("expired", none());
    world.exchange("by-reason", ExchangeKind::Headers, none());
    let wanted = none()
        .with("x-match", text("all-with-x"))
        .with("x-first-death-reason", text("expired"))
        .with("x-first-death-queue", text("source"));
    world.bind("by-reason", "", "expired", wanted);
    world.leave(source, Outcome::Expired, 1, &["late"]);
    world.leave(source, Outcome::Rejected, 2, &["refused"]);
    assert_eq!(bodies(&world.carry()), ["late"]);
    assert_eq!(world.worker.take_counts().unroutable, 1);
}

#[test]
fn a_letter_finds_its_level_by_its_priority_and_is_no_duplicate_of_itself() {
    let mut world = World::new();
    let source = world.source("source", "fan", None);
    let urgent = world.queue("urgent", none().with("x-max-priority", Value::I64(5)));
    let once = world.queue("once", none().with("x-message-deduplication", Value::Bool(true)));
    world.exchange("fan", ExchangeKind::Fanout, none());
    world.bind("fan", "", "urgent", none());
    world.bind("fan", "", "once", none());
    let properties = |priority| Properties {
        priority: Some(priority),
        message_id: Some("id"),
        expiration: Some("1000"),
        ..Properties::default()
    };
    let messages =
        [(head_with("", "", &properties(3)), "a"), (head_with("", "", &properties(200)), "b")];
    let leaving = world.leaving(source.level(2), Outcome::Expired, 1, &messages);
    world.answer(Answer::Leaving(leaving));
    let all = world.carry();
    let of = |base: QueueId| -> Vec<_> {
        let here = all.iter().filter(|stored| stored.queues[0].base() == base);
        here.map(|stored| (stored.queues[0].priority(), stored.key.is_some())).collect()
    };
    assert_eq!(of(urgent), [(3, false), (5, false)]);
    assert_eq!(of(once), [(0, false), (0, false)]);
    assert_eq!(world.take_settles(), [(source.level(2), Ranges::from(1..3))]);
}

#[test]
fn a_queue_that_refuses_publishers_takes_letters() {
    let mut world = World::new();
    let source = world.source("source", "", Some("full"));
    let arguments = none().with("x-max-length", Value::I64(0));
    let full = world.queue("full", arguments.with("x-overflow", text("reject-publish")));
    world.leave(source, Outcome::Rejected, 1, &["a"]);
    assert_eq!(world.carry()[0].queues, [full]);
}

#[test]
fn a_letter_that_would_go_round_without_anybody_refusing_it_is_dropped() {
    let mut world = World::new();
    let source = world.source("source", "fan", None);
    world.exchange("fan", ExchangeKind::Fanout, none());
    let other = world.queue("other", none());
    world.bind("fan", "", "source", none());
    world.bind("fan", "", "other", none());
    world.leave(source, Outcome::Expired, 1, &["a"]);
    assert_eq!(world.carry().remove(0).queues, [other], "only the other goes on");
    world.change(CatalogCommand::Unbind(BindingChange {
        vhost: "/".to_owned(),
        source: "fan".to_owned(),
        destination: machine::Destination::Queue("other".to_owned()),
        key: String::new(),
        arguments: none(),
        by: None,
    }));
    world.leave(source, Outcome::Overflowed, 2, &["b"]);
    assert_eq!(world.carry(), []);
    world.leave(source, Outcome::Rejected, 3, &["c"]);
    assert_eq!(world.carry().remove(0).queues, [source], "who refuses wants it again");
    assert_eq!(world.worker.take_counts().cycles, 1);
    assert_eq!(world.take_settles().len(), 3);
}

#[test]
fn a_cycle_of_several_queues_ends_where_it_closes() {
    let mut world = World::new();
    let queues = [
        world.source("a", "", Some("b")),
        world.source("b", "", Some("c")),
        world.source("c", "", Some("a")),
    ];
    let mut at = head("", "a", None);
    for queue in &queues[..2] {
        let leaving = world.leaving(*queue, Outcome::Expired, 1, &[(at, "m")]);
        world.answer(Answer::Leaving(leaving));
        at = world.carry().remove(0).head[..].into();
    }
    let leaving = world.leaving(queues[2], Outcome::Expired, 1, &[(at.clone(), "m")]);
    world.answer(Answer::Leaving(leaving));
    assert_eq!(world.carry(), [], "it has been in a already");
    let leaving = world.leaving(queues[2], Outcome::Rejected, 2, &[(at, "m")]);
    world.answer(Answer::Leaving(leaving));
    assert_eq!(world.carry().len(), 1);
}

/// A queue whose messages expire, into another.
fn expiring(world: &mut World, name: &str, next: &str) -> QueueId {
    let ttl = none().with("x-message-ttl", Value::I64(1));
    let arguments = ttl.with("x-dead-letter-exchange", text(""));
    world.queue(name, arguments.with("x-dead-letter-routing-key", text(next)))
}

/// So many of them, the last into the first.
fn ring(world: &mut World, count: usize) -> Vec<QueueId> {
    let name = |index: usize| format!("ring-{}", index % count);
    (0..count).map(|index| expiring(world, &name(index), &name(index + 1))).collect()
}

/// The head of what a message that died in `queue` goes on as, if it does.
fn died(world: &mut World, queue: QueueId, reason: Outcome, head: BytesMut) -> Option<BytesMut> {
    let leaving = world.leaving(queue, reason, 1, &[(head, "m")]);
    world.answer(Answer::Leaving(leaving));
    world.carry().pop().map(|stored| stored.head[..].into())
}

#[test]
fn a_cycle_longer_than_its_record_ends_all_the_same() {
    let mut world = World::new();
    let ring = ring(&mut world, limits::DEATHS_MAX * 2);
    let mut at = head("", "ring-0", None);
    let mut hops = 0;
    for queue in ring.iter().cycle() {
        let Some(next) = died(&mut world, *queue, Outcome::Expired, at.clone()) else { break };
        (at, hops) = (next, hops + 1);
    }
    assert_eq!(hops, limits::DEATHS_MAX, "as far as all of its way is known");
    assert_eq!(world.worker.take_counts().cycles, 1);
    let queue = ring[limits::DEATHS_MAX];
    assert!(died(&mut world, queue, Outcome::Rejected, at).is_some(), "who refuses knows it");
}

#[test]
fn a_message_without_room_for_its_deaths_does_not_go_round_either() {
    let mut world = World::new();
    let ring = ring(&mut world, 2);
    world.source("end", "", Some("ring-0"));
    let filler = FieldValue::LongStr(vec![b'x'; limits::LETTER_HEADERS_BYTES_MAX - 9]);
    let table = FieldTable(vec![("big".to_owned(), filler)]).to_bytes();
    let headers = Some(TableRef::validate(&table).unwrap());
    let full = head_with("", "ring-0", &Properties { headers, ..Properties::default() });
    assert_eq!(died(&mut world, ring[0], Outcome::Expired, full.clone()), None);
    assert_eq!(world.worker.take_counts().cycles, 1);
    assert!(died(&mut world, ring[0], Outcome::Rejected, full.clone()).is_some());
    let before_end = expiring(&mut world, "before", "end");
    let kept = died(&mut world, before_end, Outcome::Expired, full);
    assert!(kept.is_some(), "the last queue sends nothing on by itself");
}

#[test]
fn no_more_letters_are_made_than_may_be_on_their_way() {
    let mut world = World::new();
    let source = world.source("source", "", Some("target"));
    world.queue("target", none());
    let body = "x".repeat(1024 * 1024);
    let runs = 2 * limits::LETTER_BYTES_MAX as u64 / body.len() as u64;
    world.leave(source, Outcome::Rejected, 1, &[&*body; 12]);
    for seq in 13..=runs {
        world.leave(source, Outcome::Rejected, seq, &[&body]);
    }
    let appends = world.take_appends();
    let count: usize = appends.iter().map(|(_, stored)| stored.len()).sum();
    assert_eq!(count, limits::LETTER_BYTES_MAX / body.len());
    for (ticket, _) in appends {
        world.answer(Answer::Appended { ticket });
    }
    assert_eq!(world.carry().len() + count, runs as usize);
    let settled: u64 = world.take_settles().iter().map(|(_, ranges)| ranges.len()).sum();
    assert_eq!(settled, runs);
}

#[test]
fn a_step_ends_after_so_many_messages_and_the_next_goes_on() {
    let mut world = World::new();
    let source = world.source("source", "", Some("target"));
    world.queue("target", none());
    let all = 5 * limits::STEP_MESSAGES / 2;
    let numbers: Vec<String> = (0..all).map(|number| number.to_string()).collect();
    let numbers: Vec<&str> = numbers.iter().map(String::as_str).collect();
    world.leave(source, Outcome::Rejected, 1, &numbers);
    let first: usize = world.take_appends().iter().map(|(_, stored)| stored.len()).sum();
    assert_eq!(first, limits::STEP_MESSAGES as usize);
    assert_eq!(world.worker.deadline(), Some(world.now));
    assert_eq!(bodies(&world.carry()), numbers[first..]);
    assert_eq!(world.worker.deadline(), None);
    assert_eq!(world.worker.take_counts().dead, [u64::from(all), 0, 0, 0]);
}

#[test]
fn a_dead_letter_worker_that_is_stopped_begins_nothing_and_ends_what_it_began() {
    let mut world = World::new();
    let source = world.source("source", "", Some("target"));
    world.queue("target", none());
    world.leave(source, Outcome::Rejected, 1, &["a"]);
    world.step(Input::Stop);
    world.leave(source, Outcome::Rejected, 2, &["b"]);
    assert!(!world.worker.is_done());
    assert_eq!(bodies(&world.carry()), ["a"]);
    assert_eq!(world.take_settles(), [(source, Ranges::from(1..2))]);
    assert!(world.worker.is_done());
    assert_eq!(world.worker.deadline(), None);
    world.later(Duration::from_secs(60));
    assert!(world.out.requests.is_empty());
    let _ = DEAD_LETTER_WORKER;
}

#[test]
fn a_refused_publish_is_made_a_letter_at_once() {
    let mut world = World::new();
    let source = world.source("source", "", Some("target"));
    let target = world.queue("target", none());
    let mut letter = Forwarded::default();
    let head = head("ex", "key", None);
    let time_ms = 1_700_000_000_999;
    let fate = forward(&world.catalog, source, Outcome::Overflowed, time_ms, &head, &mut letter);
    assert_eq!(fate, Fate::Routed);
    assert_eq!(letter.targets.iter().map(|target| target.queue).collect::<Vec<_>>(), [target]);
    let (destination, raw) = split_head(&letter.head).unwrap();
    assert_eq!(destination_texts(destination), ("", "target"));
    let headers = Properties::decode(raw).unwrap().headers.unwrap();
    assert_eq!(headers.find("x-first-death-reason"), Some(ValueRef::LongStr(b"maxlen")));
    let gone = QueueId(1000);
    let fate = forward(&world.catalog, gone, Outcome::Overflowed, time_ms, &head, &mut letter);
    assert_eq!((fate, letter.targets.len()), (Fate::NoExchange, 0));
}
