//! Policies that come and go: what a queue may do by one is allowed to it as long as the policy can have been in force,
//! and to no message that comes later.

use super::facts::{Facts, Policy};
use crate::history::{MessageId, Nanos, Stage, Traits};

impl Facts {
    /// A policy goes a stage further.
    pub(super) fn note_policy(
        &mut self,
        t: Nanos,
        stage: Stage,
        name: &str,
        queues: Vec<u32>,
        policy: Policy,
    ) {
        match stage {
            Stage::Inv => {
                for queue in queues {
                    let policies = &mut self.queues.entry(queue).or_default().policies;
                    policies.insert(name.to_owned(), policy.clone());
                }
            }
            Stage::Ok => {
                let found = self.queues.values_mut();
                found.filter_map(|queue| queue.policies.get_mut(name)).for_each(|policy| {
                    policy.over = Some(t);
                });
            }
            Stage::Fail | Stage::Info => {}
        }
    }

    /// The policies under which this message may have been in the queue: it was sent before they were over. When it came
    /// there, if not from its publisher, nobody knows.
    pub(super) fn policies(&self, queue: u32, id: MessageId) -> impl Iterator<Item = &Policy> {
        let found = self.queues.get(&queue).filter(|queue| !queue.policies.is_empty());
        let begun = found.and_then(|_| self.publishes.get(&id)?.attempts.values().min().copied());
        let may_meet = move |policy: &&Policy| match (policy.over, begun) {
            (Some(over), Some(begun)) => begun <= over,
            (Some(_) | None, _) => true,
        };
        found.into_iter().flat_map(|queue| queue.policies.values()).filter(may_meet)
    }

    /// Whether one of these that was asked for by `t` says such a thing.
    pub(super) fn is_under(
        &self,
        queue: u32,
        id: MessageId,
        t: Nanos,
        says: impl Fn(&Traits) -> bool,
    ) -> bool {
        self.policies(queue, id).any(|policy| policy.asked <= t && says(&policy.traits))
    }

    /// Whether a policy may have sent the message, when it was dead, to where its queues do not send it.
    pub(super) fn may_go_elsewhere(&self, id: MessageId) -> bool {
        let Some(publish) = self.publishes.get(&id) else { return false };
        let is_sent = |queue: u32| self.policies(queue, id).any(|policy| policy.dead.is_some());
        let mut ways = publish.queues.iter().flat_map(|queue| self.closure(*queue, id));
        ways.any(is_sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::{Promise, Rules, check};
    use crate::history::{Event, History, What, Why};

    const MS: Nanos = 1_000_000;

    fn at(ms: u64, what: What) -> Event {
        Event { t: ms * MS, p: "test".into(), what }
    }

    fn policy(k: Stage, traits: Traits, dead: Option<&str>) -> What {
        let (x, q, dead) = ("p.1".into(), vec!["q".into()], dead.map(Into::into));
        What::Policy { k, x, q, traits, dead }
    }

    /// A message that is sent and confirmed at these times, to a plain queue that is drained in the end.
    fn broken(promise: Promise, [sent, confirmed]: [u64; 2], more: Vec<Event>) -> bool {
        let of = |k, q, h| What::Pub { k, m: "a:1".into(), n: 0, q, h, returned: false };
        let drained = |q: &str| What::Drained { q: q.into(), node: 1, left: 0 };
        let queue = |q: &str| What::Queue { q: q.into(), single: false, dead: None };
        let mut events = vec![
            at(1, queue("q")),
            at(1, queue("d")),
            at(sent, of(Stage::Inv, vec!["q".into()], Some(1))),
            at(confirmed, of(Stage::Ok, Vec::new(), None)),
            at(90_000, drained("q")),
            at(90_000, drained("d")),
        ];
        events.extend(more);
        events.sort_by_key(|event| event.t);
        !check(&History::of(events), &Rules::default()).broken(promise).is_empty()
    }

    fn short() -> Traits {
        Traits { max_length: Some(3), ..Traits::default() }
    }

    #[test]
    fn what_a_policy_drops_is_no_loss_while_the_policy_may_be_in_force() {
        let over = |ms, traits| {
            vec![
                at(1_000, policy(Stage::Inv, traits, None)),
                at(ms, policy(Stage::Ok, Traits::default(), None)),
            ]
        };
        assert!(broken(Promise::Lost, [500, 600], Vec::new()));
        assert!(!broken(Promise::Lost, [500, 600], over(5_000, short())), "it was there already");
        assert!(!broken(Promise::Lost, [4_000, 9_000], over(5_000, short())));
        assert!(broken(Promise::Lost, [5_001, 5_100], over(5_000, short())), "it came later");
        let refuses = Traits { refuses: true, ..short() };
        assert!(broken(Promise::Lost, [4_000, 4_100], over(5_000, refuses)), "it drops nothing");
        let says_nothing = Traits { delivery_limit: Some(1), ..Traits::default() };
        assert!(broken(Promise::Lost, [4_000, 4_100], over(5_000, says_nothing)));
    }

    #[test]
    fn nothing_dies_by_a_policy_before_it_is_asked_for_or_that_came_after_it() {
        let died = |ms| at(ms, What::Died { q: "q".into(), m: "a:1".into(), why: Why::Overflowed });
        let traits = Traits { max_length: Some(3), ..Traits::default() };
        let asked = |ms| at(ms, policy(Stage::Inv, traits.clone(), None));
        let over = at(5_000, policy(Stage::Ok, Traits::default(), None));
        let killed = |sent, died_at| {
            let more = vec![asked(2_000), over.clone(), died(died_at)];
            broken(Promise::Killed, [sent, sent + 1], more)
        };
        assert!(!killed(1_000, 2_500));
        assert!(killed(1_000, 1_900), "it was not asked for");
        assert!(killed(5_500, 6_000), "it was over");
        assert!(!killed(1_000, 9_000), "who leads last hands out again what died");
    }

    #[test]
    fn a_policy_sends_dead_letters_where_the_queue_does_not() {
        let got = |ms| {
            let (q, m, ep) = ("d".into(), "a:1".into(), "c".into());
            at(ms, What::Dlv { q, m, tag: 1, red: false, h: 1, ep })
        };
        let sends = || at(2_000, policy(Stage::Inv, Traits::default(), Some("d")));
        let over = || at(5_000, policy(Stage::Ok, Traits::default(), None));
        assert!(broken(Promise::Unexpected, [1_000, 1_001], vec![got(3_000)]));
        let under = |sent: u64| vec![sends(), over(), got(sent + 500)];
        assert!(!broken(Promise::Unexpected, [3_000, 3_001], under(3_000)));
        assert!(broken(Promise::Unexpected, [5_500, 5_501], under(5_500)));
    }
}
