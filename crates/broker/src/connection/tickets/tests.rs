//! Who waits for what, and which groups are silent.
#![allow(clippy::disallowed_methods, reason = "somewhere to count from")]

use super::*;

const ONE: GroupId = GroupId(1);
const TWO: GroupId = GroupId(2);

fn append(group: GroupId) -> Waiting {
    Waiting::Append { group, runs: Vec::new(), bytes: 0, sent_at: None }
}

#[test]
fn a_group_is_silent_while_an_append_has_no_answer_for_long() {
    let (began, mut tickets, mut silent) = (Instant::now(), Tickets::default(), Vec::new());
    let at = |ms| began + Duration::from_millis(ms);
    let sent =
        |group, ms| Waiting::Append { group, runs: Vec::new(), bytes: 0, sent_at: Some(at(ms)) };
    let first = tickets.issue(sent(ONE, 0));
    tickets.issue(sent(ONE, 10));
    let other = tickets.issue(sent(TWO, 20));
    let after = Duration::from_millis(100);
    let mut look = |tickets: &Tickets, ms| {
        tickets.silent_groups(at(ms), after, &mut silent);
        silent.clone()
    };
    assert_eq!(look(&tickets, 99), []);
    assert_eq!(look(&tickets, 100), [ONE]);
    tickets.answer(first);
    assert_eq!(look(&tickets, 105), []);
    assert_eq!(look(&tickets, 130), [ONE, TWO]);
    tickets.answer(other);
    assert_eq!(look(&tickets, 130), [ONE]);
}

#[test]
fn a_ticket_is_answered_once() {
    let mut tickets = Tickets::default();
    let (one, two) = (tickets.issue(append(ONE)), tickets.issue(Waiting::End));
    assert!(matches!(tickets.answer(two), Some(Waiting::End)));
    assert!(tickets.answer(two).is_none());
    assert!(tickets.answer(one).is_some());
    assert!(tickets.answer(one).is_none());
    assert!(tickets.answer(Ticket(99)).is_none());
}

#[test]
fn a_mark_is_past_when_all_appends_before_it_are_answered() {
    let mut tickets = Tickets::default();
    let one = tickets.issue(append(ONE));
    let two = tickets.issue(append(ONE));
    assert_eq!(tickets.last_append(Groups::All), Some(two));
    tickets.answer(two);
    assert!(!tickets.is_past(two, Groups::All), "the first is still open");
    tickets.answer(one);
    assert!(tickets.is_past(two, Groups::All));
    assert_eq!(tickets.last_append(Groups::All), None);
}

#[test]
fn appends_for_other_groups_are_not_waited_for() {
    let mut tickets = Tickets::default();
    let one = tickets.issue(append(ONE));
    let two = tickets.issue(append(TWO));
    assert_eq!(tickets.last_append(Groups::One(ONE)), Some(one));
    assert_eq!(tickets.last_append(Groups::One(GroupId(3))), None);
    tickets.answer(two);
    assert!(tickets.is_past(two, Groups::One(TWO)), "the first group is still open");
    assert!(!tickets.is_past(two, Groups::All));
    assert_eq!(tickets.last_append(Groups::One(TWO)), None);
}
