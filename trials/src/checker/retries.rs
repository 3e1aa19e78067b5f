//! R1: a dead letter that was sent on, and let go of where it lay, comes to where it was sent. It may come more than
//! once; what is promised of messages that come once is not asked of it.

use std::collections::BTreeSet;

use super::facts::Facts;
use super::{Promise, Report, features};
use crate::history::{MessageId, Nanos, Stage, Why};

/// How one message was sent on from one queue.
#[derive(Clone, Debug, Default)]
pub(super) struct Retried {
    /// When it was first taken, to be sent on.
    since: Nanos,
    /// When it was first sent where, since it was taken last.
    sent: Vec<(Nanos, u32)>,
    /// The same for those that were let go of.
    done: Vec<(Nanos, u32)>,
    /// Where it was ever sent: what was given up may be stored all the same.
    ever: BTreeSet<u32>,
}

impl Facts {
    pub(super) fn note_retry(
        &mut self,
        t: Nanos,
        stage: Stage,
        from: &str,
        message: Option<&str>,
        to: &[String],
    ) {
        let from = self.names.number(from);
        let to: Vec<u32> = to.iter().map(|queue| self.names.number(queue)).collect();
        let Some(message) = message else {
            for queue in to {
                self.queues.entry(from).or_default().retried_to.entry(queue).or_insert(t);
                self.queues.entry(queue).or_default().takes_dead = true;
            }
            return;
        };
        let id = self.names.message(message);
        self.came_again.insert(id);
        let first = || Retried { since: t, ..Retried::default() };
        let retried = self.retried.entry((from, id)).or_insert_with(first);
        match stage {
            Stage::Inv => {
                retried.ever.extend(&to);
                for queue in to {
                    if retried.sent.iter().all(|(_, before)| *before != queue) {
                        retried.sent.push((t, queue));
                    }
                }
            }
            Stage::Ok => retried.done.append(&mut retried.sent),
            // It is taken anew: what was sent before was given up, whether it is stored or not.
            Stage::Fail => retried.sent.clear(),
            Stage::Info => {}
        }
    }

    /// Where a message may have been sent on to from a queue.
    pub(super) fn sent_on(&self, queue: u32, id: MessageId) -> impl Iterator<Item = u32> {
        let found = self.retried.get(&(queue, id));
        let alone = found.into_iter().flat_map(|it| it.ever.iter().copied());
        let any = self.queues.get(&queue).into_iter().flat_map(|found| found.retried_to.keys());
        alone.chain(any.copied())
    }

    /// Whether a message may have been sent on from a queue by `t`. It says of itself that it was rejected there: a retry
    /// leaves the trace that a consumer's refusal leaves.
    pub(super) fn may_be_sent_on(&self, queue: u32, id: MessageId, t: Nanos) -> bool {
        let is_alone = self.retried.get(&(queue, id)).is_some_and(|it| it.since <= t);
        let found = self.queues.get(&queue);
        let is_any = found.is_some_and(|it| it.retried_to.values().any(|since| *since <= t));
        is_alone || is_any
    }
}

pub(super) fn judge(facts: &Facts, report: &mut Report) {
    // Which of them an operator of real processes sent on, only they themselves say. Q1 judges whether they came.
    let is_any = |queue: &u32| facts.queues.get(queue).is_some_and(|it| !it.retried_to.is_empty());
    let says_so = |deaths: &[(Nanos, Why)]| deaths.iter().any(|(_, why)| *why == Why::Rejected);
    let seen = facts.deaths.iter().filter(|((from, _), deaths)| is_any(from) && says_so(deaths));
    report.counts.retried += seen.count() as u64;
    for ((from, id), retried) in &facts.retried {
        for (sent, to) in &retried.done {
            report.counts.retried += 1;
            if !is_there(facts, *id, *sent, *to) {
                let (from, to) = (facts.names.name(*from), facts.names.name(*to));
                let text = facts.names.text(*id);
                report.violate(Promise::Retried, format!("{text} from {from} to {to}"));
            }
        }
    }
}

/// Whether somebody got it after it was sent there, or it may be there still, or gone for a reason.
fn is_there(facts: &Facts, id: MessageId, sent: Nanos, to: u32) -> bool {
    let ways: BTreeSet<u32> = facts.closure(to, id);
    let is_drained = |queue: &u32| facts.queues.get(queue).is_some_and(|it| it.left == Some(0));
    let was_given = |queue: &u32| {
        let taken = facts.taken.get(&(*queue, id));
        taken.is_some_and(|taken| taken.deliveries.iter().any(|delivery| delivery.t > sent))
    };
    ways.iter().any(was_given)
        || !ways.iter().all(is_drained)
        || features::may_be_gone(facts, to, id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::{Rules, check};
    use crate::history::{Event, History, What};

    fn at(t: u64, what: What) -> Event {
        Event { t, p: "test".into(), what }
    }

    fn retry(t: u64, k: Stage, to: &[&str]) -> Event {
        let to = to.iter().map(|to| (*to).to_owned()).collect();
        at(t, What::Retry { k, q: "dead".into(), m: Some("a:1".into()), to })
    }

    fn got(t: u64, q: &str) -> Event {
        let (q, m, ep) = (q.into(), "a:1".into(), "c".into());
        at(t, What::Dlv { q, m, tag: t, red: false, h: 1, ep })
    }

    /// A message that is given out from `q` and dies, in a run whose queues are empty in the end.
    fn broken(promise: Promise, more: Vec<Event>) -> bool {
        let queue = |q: &str, dead: Option<&str>| {
            let (q, dead) = (q.into(), dead.map(Into::into));
            at(1, What::Queue { q, single: false, dead })
        };
        let drained = |q: &str| at(90, What::Drained { q: q.into(), node: 1, left: 0 });
        let (k, m, q, h) = (Stage::Inv, "a:1".to_owned(), vec!["q".into()], Some(1));
        let mut events = vec![
            queue("q", Some("dead")),
            queue("dead", None),
            queue("other", None),
            at(2, What::Pub { k, m, n: 0, q, h, returned: false }),
            got(3, "q"),
            drained("q"),
            drained("dead"),
            drained("other"),
        ];
        events.extend(more);
        events.sort_by_key(|event| event.t);
        !check(&History::of(events), &Rules::default()).broken(promise).is_empty()
    }

    #[test]
    fn what_is_let_go_of_comes_to_where_it_was_sent() {
        let sent = || vec![retry(10, Stage::Inv, &["q"]), retry(11, Stage::Ok, &[])];
        assert!(broken(Promise::Retried, sent()), "that it came before is not enough");
        assert!(!broken(Promise::Retried, [sent(), vec![got(12, "q")]].concat()));
        assert!(!broken(Promise::Retried, [sent(), vec![got(12, "dead")]].concat()), "it died");
        assert!(!broken(Promise::Retried, vec![retry(10, Stage::Inv, &["q"])]), "it lies there");
    }

    #[test]
    fn what_is_sent_on_may_come_anywhere_it_was_sent_and_more_than_once() {
        let sent = || vec![retry(10, Stage::Inv, &["other"]), retry(11, Stage::Ok, &[])];
        let twice = || vec![got(12, "other"), got(13, "other")];
        assert!(broken(Promise::Unexpected, twice()), "nobody sent it there");
        for promise in [Promise::Unexpected, Promise::Unflagged, Promise::Retried] {
            assert!(!broken(promise, [sent(), twice()].concat()), "{promise}");
        }
    }

    #[test]
    fn what_was_given_up_need_not_come_and_may() {
        let again = || {
            vec![
                retry(10, Stage::Fail, &[]),
                retry(11, Stage::Inv, &["other"]),
                retry(12, Stage::Fail, &[]),
                retry(13, Stage::Inv, &["q"]),
                retry(14, Stage::Ok, &[]),
                got(15, "q"),
            ]
        };
        assert!(!broken(Promise::Retried, again()));
        assert!(!broken(Promise::Unexpected, [again(), vec![got(16, "other")]].concat()));
        let taken_once: Vec<Event> = again().into_iter().filter(|event| event.t != 12).collect();
        assert!(broken(Promise::Retried, taken_once), "both were sent, and one came");
    }

    /// Any in `dead` may be sent on to `other`.
    fn any(t: u64) -> Event {
        let (k, q, to) = (Stage::Inv, "dead".to_owned(), vec!["other".to_owned()]);
        at(t, What::Retry { k, q, m: None, to })
    }

    #[test]
    fn where_any_may_be_sent_on_each_may_come() {
        assert!(!broken(Promise::Unexpected, vec![any(10), got(12, "other")]));
    }

    #[test]
    fn what_is_sent_on_says_that_it_was_rejected_where_it_lay_and_nothing_else_does() {
        let died = |t, q: &str, why| at(t, What::Died { q: q.into(), m: "a:1".into(), why });
        let rejected = |t| died(t, "dead", Why::Rejected);
        assert!(broken(Promise::Killed, vec![rejected(12)]), "nobody refused it or sent it on");
        assert!(!broken(Promise::Killed, vec![any(10), rejected(12)]));
        assert!(!broken(Promise::Killed, vec![retry(10, Stage::Fail, &[]), rejected(12)]));
        assert!(broken(Promise::Killed, vec![any(13), rejected(12)]), "it was not asked for");
        assert!(broken(Promise::Killed, vec![any(10), died(12, "q", Why::Rejected)]), "elsewhere");
        assert!(broken(Promise::Killed, vec![any(10), died(12, "dead", Why::Expired)]));
    }
}
