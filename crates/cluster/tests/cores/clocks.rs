//! Clocks that are wrong: a group keeps its own time, whoever leads it.

use super::*;

#[test]
fn a_node_that_started_with_a_wrong_clock_does_not_lead_by_it() {
    let mut cluster = Cluster::new(3, 1);
    let ann = session(NodeId(1));
    let place = cluster.declare(ann, "later", (true, false));
    let leader = cluster.leader(place.1);
    for other in (1..=3).map(NodeId).filter(|node| *node != leader) {
        cluster.wall_errors.insert(other, 3_600_000);
        cluster.restart(other);
        cluster.run(3000);
    }
    let by = session(leader);
    let mut batch = Batch::new();
    let delayed = Attributes { delay_ms: Some(60_000), ..Attributes::default() };
    batch.enqueue_with(&[place.0], &delayed, &[], b"delayed");
    let mortal = Attributes { ttl_ms: Some(60_000), ..Attributes::default() };
    (0..2).for_each(|_| batch.enqueue_with(&[place.0], &mortal, &[], b"mortal"));
    let (ticket, group, settles) = (Ticket(1), place.1, Vec::new());
    cluster.ask(by, Request::Append { group, ticket, batch, settles });
    cluster.run(100);
    assert_eq!(appended(&cluster.told(by)), [1]);
    depose(&mut cluster, place.1);
    let heir = cluster.leader(place.1);
    assert_ne!(heir, leader);
    assert_eq!(ready(&mut cluster, session(heir), place), 2, "none expired, and one waits");
}

#[test]
fn a_group_keeps_its_time_when_one_with_another_clock_takes_over() {
    const HOUR: i64 = 3_600_000;
    for error in [-HOUR, HOUR] {
        let mut cluster = Cluster::new(3, 1);
        let ann = session(NodeId(1));
        let place = cluster.declare(ann, "later", (true, false));
        let leader = cluster.leader(place.1);
        // The leader's own clock is set while it leads, and the others never had the right time.
        cluster.wall_errors = (1..=3).map(|node| (NodeId(node), error)).collect();
        cluster.wall_errors.insert(leader, error / 7);
        cluster.run(2500);
        let bob = outsider(&mut cluster, place.1);
        let mut batch = Batch::new();
        let attributes = Attributes { delay_ms: Some(6000), ..Attributes::default() };
        batch.enqueue_with(&[place.0], &attributes, &[], b"a");
        let (ticket, group, settles) = (Ticket(1), place.1, Vec::new());
        cluster.ask(bob, Request::Append { group, ticket, batch, settles });
        let published_ms = cluster.ms;
        cluster.run(100);
        assert_eq!(appended(&cluster.told(bob)), [1]);
        attach(&mut cluster, bob, place, 5);
        depose(&mut cluster, place.1);
        assert_ne!(cluster.leader(place.1), leader);
        let left_ms = published_ms + 5900 - cluster.ms;
        cluster.run(left_ms);
        assert!(delivered(&mut cluster, bob).is_empty(), "{error}: it comes early");
        cluster.run(300);
        assert_eq!(delivered(&mut cluster, bob).len(), 1, "{error}: it comes late");
    }
}

#[test]
fn a_node_that_was_stopped_and_leads_then_does_not_put_the_time_back() {
    for (sleeper, sleep_ms) in [(0, 1300), (1, 1300), (0, 1700), (1, 1700), (0, 1900), (1, 1900)] {
        let mut cluster = Cluster::new(3, 1);
        let ann = session(NodeId(1));
        let place = cluster.declare(ann, "later", (true, false));
        cluster.run(6000);
        let leader = cluster.leader(place.1);
        let others: Vec<NodeId> = (1..=3).map(NodeId).filter(|node| *node != leader).collect();
        let bob = session(others[1 - sleeper]);
        let mut batch = Batch::new();
        let attributes = Attributes { delay_ms: Some(6000), ..Attributes::default() };
        batch.enqueue_with(&[place.0], &attributes, &[], b"a");
        let (ticket, group, settles) = (Ticket(1), place.1, Vec::new());
        cluster.ask(bob, Request::Append { group, ticket, batch, settles });
        let published_ms = cluster.ms;
        attach(&mut cluster, bob, place, 5);
        cluster.asleep.insert(others[sleeper]);
        cluster.run(sleep_ms);
        cluster.asleep.clear();
        cluster.run(2);
        depose(&mut cluster, place.1);
        let left_ms = published_ms + 5900 - cluster.ms;
        cluster.run(left_ms);
        assert!(delivered(&mut cluster, bob).is_empty(), "{sleeper} {sleep_ms}: it comes early");
        cluster.run(400);
        assert_eq!(delivered(&mut cluster, bob).len(), 1, "{sleeper} {sleep_ms}: it comes late");
    }
}

#[test]
fn a_leader_that_starts_again_with_a_wrong_clock_does_not_lead_by_it() {
    for error in [-3_600_000, 3_600_000] {
        let mut cluster = Cluster::new(3, 1);
        let ann = session(NodeId(1));
        let place = cluster.declare(ann, "later", (true, false));
        cluster.run(6000);
        let leader = cluster.leader(place.1);
        let bob = outsider(&mut cluster, place.1);
        let mut batch = Batch::new();
        let delayed = Attributes { delay_ms: Some(60_000), ..Attributes::default() };
        batch.enqueue_with(&[place.0], &delayed, &[], b"delayed");
        let mortal = Attributes { ttl_ms: Some(60_000), ..Attributes::default() };
        (0..2).for_each(|_| batch.enqueue_with(&[place.0], &mortal, &[], b"mortal"));
        let (ticket, group, settles) = (Ticket(1), place.1, Vec::new());
        cluster.ask(bob, Request::Append { group, ticket, batch, settles });
        cluster.run(100);
        assert_eq!(appended(&cluster.told(bob)), [1]);
        cluster.wall_errors.insert(leader, error);
        cluster.restart(leader);
        cluster.run(5000);
        assert_eq!(ready(&mut cluster, bob, place), 2, "{error}: none expired, and one waits");
    }
}
