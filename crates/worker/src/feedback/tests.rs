use proptest::prelude::*;

use super::*;

fn gate() -> (Gate, Instant) {
    #[allow(clippy::disallowed_methods, reason = "a test needs some instant to begin at")]
    let now = Instant::now();
    (Gate::new(Rules::default()), now)
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn ticket(decision: Decision) -> Ticket {
    match decision {
        Decision::Wait(ticket) => ticket,
        Decision::Dead | Decision::Held => panic!("it should wait: {decision:?}"),
    }
}

#[test]
fn a_wrong_environment_declares_no_token_dead_and_says_so_once() {
    let (mut gate, start) = gate();
    for count in 0..10_000_u64 {
        let now = start + Duration::from_millis(count * 10);
        let certainty = if count % 2 == 0 { Certainty::Candidate } else { Certainty::Certain };
        match gate.candidate(now, certainty) {
            Decision::Dead => panic!("nothing was ever accepted"),
            Decision::Wait(ticket) => assert_eq!(gate.judge(ticket.until, ticket), Decision::Held),
            Decision::Held => {}
        }
        assert_eq!(gate.notice().is_some(), count == 0, "one notice, at the first");
    }
    assert_eq!(gate.counts(), (0, 10_000));
}

#[test]
fn a_success_shortly_before_lets_a_token_be_declared_dead_at_once() {
    let (mut gate, now) = gate();
    gate.success(now);
    assert_eq!(gate.candidate(now + seconds(60), Certainty::Candidate), Decision::Dead);
    ticket(gate.candidate(now + seconds(61), Certainty::Candidate));
}

#[test]
fn a_success_shortly_after_lets_a_waiting_token_be_declared_dead() {
    let (mut gate, now) = gate();
    let waits = ticket(gate.candidate(now, Certainty::Candidate));
    assert_eq!(gate.judge(now + seconds(1), waits), Decision::Wait(waits));
    gate.success(now + seconds(1));
    assert_eq!(gate.judge(now + seconds(1), waits), Decision::Dead);
    assert_eq!(gate.notice(), None, "nothing was held");
}

#[test]
fn a_wait_ends_after_two_seconds_and_those_after_it_do_not_wait() {
    let (mut gate, now) = gate();
    let waits = ticket(gate.candidate(now, Certainty::Candidate));
    assert_eq!(waits.until, now + seconds(2));
    assert_eq!(gate.judge(waits.until, waits), Decision::Held);
    assert_eq!(gate.notice(), Some(Notice::Held { refused: 1 }));
    assert_eq!(gate.candidate(now + seconds(3), Certainty::Candidate), Decision::Held);
    assert_eq!(gate.notice(), None);
    gate.success(now + seconds(4));
    assert_eq!(gate.notice(), Some(Notice::Open));
    assert_eq!(gate.candidate(now + seconds(5), Certainty::Candidate), Decision::Dead);
}

#[test]
fn a_certain_verdict_needs_a_success_of_the_last_day_only() {
    let (mut gate, now) = gate();
    ticket(gate.candidate(now, Certainty::Certain));
    gate.success(now);
    assert_eq!(gate.candidate(now + CERTAIN_ROUND, Certainty::Certain), Decision::Dead);
    ticket(gate.candidate(now + CERTAIN_ROUND + seconds(1), Certainty::Certain));
}

#[test]
fn one_success_vouches_for_a_limited_number_of_tokens() {
    let (mut gate, now) = gate();
    gate.success(now);
    for _ in 0..DEAD_PER_SUCCESS_MAX {
        assert_eq!(gate.candidate(now, Certainty::Certain), Decision::Dead);
    }
    assert_eq!(gate.candidate(now, Certainty::Certain), Decision::Held, "credentials may be new");
    gate.success(now);
    assert_eq!(gate.candidate(now, Certainty::Certain), Decision::Dead);
}

#[test]
fn a_limited_number_waits() {
    let (mut gate, now) = gate();
    for _ in 0..WAITING_MAX {
        ticket(gate.candidate(now, Certainty::Candidate));
    }
    assert_eq!(gate.candidate(now, Certainty::Candidate), Decision::Held);
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Success,
    Candidate { is_certain: bool },
    Pass { ms: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => Just(Step::Success),
        6 => any::<bool>().prop_map(|is_certain| Step::Candidate { is_certain }),
        3 => (0..90_000_u64).prop_map(|ms| Step::Pass { ms }),
    ]
}

proptest! {
    /// Judged by another rule than the gate's own: at each death, a success lies in the round before it or came
    /// while it waited, and no more than the limit died since it.
    #[test]
    fn whatever_happens_each_death_has_a_success_near(steps in prop::collection::vec(step(), 1..400)) {
        let (mut gate, mut now) = gate();
        let mut last: Option<Instant> = None;
        let mut deaths = 0;
        let mut waiting: Vec<Ticket> = Vec::new();
        for step in steps {
            match step {
                Step::Success => {
                    gate.success(now);
                    (last, deaths) = (Some(now), 0);
                }
                Step::Pass { ms } => now += Duration::from_millis(ms),
                Step::Candidate { is_certain } => {
                    let (certainty, round) = if is_certain {
                        (Certainty::Certain, CERTAIN_ROUND)
                    } else {
                        (Certainty::Candidate, Rules::default().round)
                    };
                    match gate.candidate(now, certainty) {
                        Decision::Dead => {
                            deaths += 1;
                            prop_assert!(last.is_some_and(|at| now - at <= round));
                        }
                        Decision::Wait(ticket) => waiting.push(ticket),
                        Decision::Held => {}
                    }
                }
            }
            for ticket in std::mem::take(&mut waiting) {
                match gate.judge(now, ticket) {
                    Decision::Dead => {
                        deaths += 1;
                        prop_assert!(last.is_some_and(|at| at + Rules::default().wait >= ticket.until
                            - Rules::default().wait));
                    }
                    Decision::Wait(ticket) => waiting.push(ticket),
                    Decision::Held => {}
                }
            }
            prop_assert!(deaths <= DEAD_PER_SUCCESS_MAX);
            prop_assert!(waiting.len() <= WAITING_MAX);
        }
    }
}
