//! When partitions are told who is elected, and when there is credit.
#![allow(clippy::disallowed_methods, reason = "a test: the time begins now")]

use super::super::ChannelRoom;
use super::*;
use crate::connection::tickets::ChannelRef;
use machine::{GroupId, Partition, QueueId};

/// A consumer of three partitions that all serve it, with a prefetch of six.
fn attached() -> (Consumers, u64) {
    let mut consumers = Consumers::default();
    let one = |index: u16| Partition::plain(QueueId(u64::from(index) + 7), GroupId(1));
    let partitions: Vec<_> = (0..3).map(|index| (one(index), index)).collect();
    let channel = ChannelRef { number: 1, life: 1 };
    let lead = consumers.add_partitions(channel, "a", &partitions, false, 6);
    for member in consumers.members(lead) {
        consumers.find_mut(member).expect("one of three").is_one_of_all = true;
    }
    consumers.attached(lead);
    (consumers, lead)
}

fn granted(consumers: &mut Consumers) -> u32 {
    let (free, mut all) = (ChannelRoom { prefetch: 0, consumed: 0, unacked: 0 }, 0);
    consumers.grant(|_| Some(free), |_, credit| all += credit);
    all
}

/// Tells partitions until none is left, and gives them in that order.
fn tell(consumers: &mut Consumers, generation: u64) -> Vec<u64> {
    let mut told = Vec::new();
    while let [next] = consumers.take_untold()[..] {
        told.push(next);
        consumers.told(next, generation, true, Instant::now());
    }
    told
}

#[test]
fn the_first_partition_is_told_last_and_then_there_is_credit() {
    let (mut consumers, lead) = attached();
    assert_eq!(granted(&mut consumers), 0, "it is not elected");
    consumers.elected(lead, 7);
    let [first] = consumers.take_untold()[..] else { panic!("one after the other") };
    assert_eq!(consumers.find(first).expect("a partition").spec.generation, 7);
    consumers.mark(lead);
    assert_eq!(granted(&mut consumers), 0, "not all know it");
    consumers.told(first, 7, true, Instant::now());
    assert_eq!(tell(&mut consumers, 7), [lead + 2, lead]);
    assert_eq!((first, granted(&mut consumers)), (lead + 1, 6));
    // What is said again changes nothing.
    consumers.elected(lead, 7);
    assert!(consumers.take_untold().is_empty());
}

#[test]
fn another_generation_begins_from_the_start_and_none_ends_credit() {
    let (mut consumers, lead) = attached();
    consumers.elected(lead, 7);
    let [first] = consumers.take_untold()[..] else { panic!("one after the other") };
    consumers.elected(lead, 9);
    consumers.told(first, 7, true, Instant::now());
    assert_eq!(tell(&mut consumers, 9), [lead + 1, lead + 2, lead]);
    assert_eq!(granted(&mut consumers), 6);
    consumers.elected(lead, 0);
    assert_eq!(tell(&mut consumers, 0), [lead + 1, lead + 2, lead]);
    assert_eq!(granted(&mut consumers), 0);
}

#[test]
fn a_partition_that_cannot_be_told_is_told_again_after_a_second() {
    let (mut consumers, lead) = attached();
    let now = Instant::now();
    consumers.elected(lead, 7);
    let [first] = consumers.take_untold()[..] else { panic!("one after the other") };
    consumers.told(first, 7, false, now);
    assert!(consumers.take_untold().is_empty());
    let at = consumers.tell_again_at().expect("a time");
    consumers.tell_again(at - Duration::from_millis(1));
    assert!(consumers.take_untold().is_empty());
    consumers.tell_again(at);
    assert_eq!(tell(&mut consumers, 7), [first, lead + 2, lead]);
    assert_eq!((granted(&mut consumers), consumers.tell_again_at()), (6, None));
}

#[test]
fn who_is_cancelled_tells_nobody_any_more() {
    let (mut consumers, lead) = attached();
    consumers.elected(lead, 7);
    consumers.end_telling(lead);
    assert!(consumers.take_untold().is_empty());
    consumers.elected(lead, 9);
    assert!(consumers.take_untold().is_empty());
}
