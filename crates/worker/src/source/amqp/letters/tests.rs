use super::*;

#[expect(clippy::disallowed_methods, reason = "a test has to begin somewhere")]
fn start() -> Instant {
    Instant::now()
}

fn letter(receipt: u64, to: To) -> Letter {
    Letter { receipt: Receipt(receipt), to, properties: Bytes::new(), body: Bytes::new() }
}

fn queue() -> To {
    To::Queue("q".into())
}

fn exchange() -> To {
    To::Exchange { exchange: "ex".into(), routing_key: "k".into() }
}

fn bucket() -> To {
    To::Bucket(Bucket { exchange: String::new(), routing_key: "q".into(), ms: 128 })
}

/// Sends all that may be sent, numbered from `first`; gives how many.
fn send(letters: &mut Letters, now: Instant, first: u64) -> u64 {
    let mut seq = first;
    while let Some((id, _)) = letters.next(now) {
        letters.sent(id, PublishSeq(seq));
        seq += 1;
    }
    seq - first
}

fn run(first: u64, last: u64) -> Run {
    Run { first: PublishSeq(first), last: PublishSeq(last) }
}

fn confirmed(letters: &mut Letters, now: Instant, first: u64, last: u64) -> Vec<u64> {
    let mut finished = Vec::new();
    letters.confirmed(run(first, last), now, &mut finished);
    finished.into_iter().map(|receipt| receipt.0).collect()
}

#[test]
fn a_job_is_let_go_when_the_last_of_its_letters_is_safe() {
    let (mut letters, now) = (Letters::default(), start());
    letters.add(now, vec![letter(1, queue()), letter(1, queue())]);
    letters.add(now, vec![letter(2, queue())]);
    assert_eq!(send(&mut letters, now, 1), 3);
    assert_eq!(confirmed(&mut letters, now, 2, 3), [2]);
    assert_eq!(confirmed(&mut letters, now, 1, 1), [1]);
    assert!(letters.is_empty());
}

#[test]
fn what_is_refused_is_sent_again_ever_later_and_said_ever_seldomer() {
    let (mut letters, mut now) = (Letters::default(), start());
    letters.add(now, vec![letter(1, queue())]);
    let mut complaints = Vec::new();
    for seq in 1..=10 {
        assert_eq!(send(&mut letters, now, seq), 1);
        letters.refused(run(seq, seq), now, "no queue", &mut complaints);
        assert!(letters.next(now).is_none(), "not at once");
        now = letters.deadline().expect("it is sent again");
    }
    let said: Vec<u32> = complaints.iter().map(|complaint| complaint.failures).collect();
    assert_eq!(said, [1, 2, 4, 8]);
    assert_eq!(send(&mut letters, now, 11), 1);
    assert_eq!(confirmed(&mut letters, now, 11, 11), [1]);
}

#[test]
fn what_needs_something_waits_for_it_and_nothing_waits_with_it() {
    let (mut letters, now) = (Letters::default(), start());
    letters.add(now, vec![letter(1, exchange()), letter(2, queue()), letter(3, bucket())]);
    assert_eq!(send(&mut letters, now, 1), 1);
    let needs = letters.needs();
    assert_eq!(needs.len(), 2);
    let mut complaints = Vec::new();
    letters.unmet(&needs[0], now, "there is none", &mut complaints);
    letters.met(&needs[1], now, now);
    assert_eq!(send(&mut letters, now, 2), 1);
    assert_eq!((complaints.len(), confirmed(&mut letters, now, 1, 2)), (1, vec![2, 3]));
    // What was met is looked at again after a while.
    let later = now + MET_FOR;
    letters.add(later, vec![letter(4, bucket())]);
    assert_eq!(send(&mut letters, later, 3), 0);
}

#[test]
fn a_confirm_does_not_count_when_the_queue_may_have_gone_with_the_message() {
    let (mut letters, now) = (Letters::default(), start());
    letters.add(now, vec![letter(1, bucket())]);
    send(&mut letters, now, 1);
    let need = letters.needs().remove(0);
    letters.met(&need, now, now);
    assert_eq!(send(&mut letters, now, 1), 1);
    let late = now + CONFIRM_WITHIN + Duration::from_millis(1);
    assert_eq!(confirmed(&mut letters, late, 1, 1), Vec::<u64>::new());
    send(&mut letters, late, 2);
    assert_eq!(letters.needs(), std::slice::from_ref(&need), "the queue is declared again first");
    letters.met(&need, late, late);
    assert_eq!(send(&mut letters, late, 2), 1);
    assert_eq!(confirmed(&mut letters, late, 2, 2), [1]);
}

#[test]
fn all_that_was_out_is_sent_again_when_the_connection_is_lost() {
    let (mut letters, now) = (Letters::default(), start());
    letters.add(now, (1..=3).map(|receipt| letter(receipt, queue())).collect());
    send(&mut letters, now, 1);
    assert_eq!(confirmed(&mut letters, now, 2, 2), [2]);
    letters.lost(now, None, &mut Vec::new());
    assert_eq!(send(&mut letters, now, 1), 2);
    assert_eq!(confirmed(&mut letters, now, 1, 2), [1, 3]);
}

#[test]
fn the_one_that_closes_the_channel_is_found_and_holds_nobody_up() {
    let (mut letters, mut now) = (Letters::default(), start());
    letters.add(now, (1..=3).map(|receipt| letter(receipt, queue())).collect());
    assert_eq!(send(&mut letters, now, 1), 3);
    let mut complaints = Vec::new();
    // The second is the one.
    letters.lost(now, Some("access refused"), &mut complaints);
    assert_eq!((send(&mut letters, now, 1), complaints.len()), (1, 0));
    assert_eq!(confirmed(&mut letters, now, 1, 1), [1]);
    assert_eq!(send(&mut letters, now, 2), 1);
    letters.lost(now, Some("access refused"), &mut complaints);
    assert_eq!(complaints.remove(0).receipt, Receipt(2));
    assert_eq!(send(&mut letters, now, 1), 1);
    assert_eq!(confirmed(&mut letters, now, 1, 1), [3]);
    // And is sent alone from now on.
    now = letters.deadline().expect("it is sent again");
    letters.add(now, vec![letter(4, queue())]);
    assert_eq!(send(&mut letters, now, 2), 1);
}

#[test]
fn letters_of_lost_jobs_are_forgotten() {
    let (mut letters, now) = (Letters::default(), start());
    letters.add(now, vec![letter(1, queue()), letter(2, exchange())]);
    send(&mut letters, now, 1);
    letters.forget();
    assert!(letters.is_empty() && letters.needs().is_empty() && letters.deadline().is_none());
    assert_eq!(confirmed(&mut letters, now, 1, 1), Vec::<u64>::new());
}
