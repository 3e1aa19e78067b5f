//! Locks: one holder at a time, whoever leads and whatever clocks say.

use cluster::{LockQuestion, LockSpec, NotLocked};
use machine::{LockCommand, LockReply, LockView, Version};

use super::*;

const BEFORE: Version = Version(Version::LOCKS.0 - 1);
const LEASE_MS: u64 = 5_000;
const WAITS_MS: u32 = 30_000;

/// The group that keeps the lock.
fn group(cluster: &mut Cluster) -> GroupId {
    let core = cluster.cores.first().expect("a node");
    core.shards[0].catalog().expect("the catalog's shard").lock_group("/", "job")
}

fn ask(cluster: &mut Cluster, by: SessionId, ticket: u64, command: LockCommand, wait_ms: u32) {
    let group = group(cluster);
    let what = LockQuestion::Do(command);
    let spec = Box::new(LockSpec { what, wait_ms, is_again: false });
    cluster.ask(by, Request::Lock { ticket: Ticket(ticket), group, spec });
}

fn acquire(owner: &str) -> LockCommand {
    let (vhost, name, owner) = ("/".to_owned(), "job".to_owned(), owner.to_owned());
    LockCommand::Acquire { vhost, name, owner, lease_ms: LEASE_MS }
}

fn renew(token: u64) -> LockCommand {
    LockCommand::Renew { vhost: "/".into(), name: "job".into(), token, lease_ms: LEASE_MS }
}

fn release(token: u64) -> LockCommand {
    LockCommand::Release { vhost: "/".into(), name: "job".into(), token }
}

fn replies(cluster: &mut Cluster, by: SessionId) -> Vec<Result<LockReply, NotLocked>> {
    let told = cluster.told(by).into_iter();
    told.filter_map(|answer| match answer {
        Answer::Locked { result, .. } => Some(result.map(|reply| *reply)),
        _ => None,
    })
    .collect()
}

/// Asks, and is answered soon.
fn done(cluster: &mut Cluster, by: SessionId, command: LockCommand) -> LockReply {
    ask(cluster, by, 1, command, 0);
    cluster.run(50);
    match &mut replies(cluster, by)[..] {
        [Ok(reply)] => reply.clone(),
        other => panic!("{other:?}"),
    }
}

fn token(reply: &LockReply) -> u64 {
    match reply {
        LockReply::Acquired { token, .. } => *token,
        other => panic!("{other:?}"),
    }
}

fn holder(reply: &LockReply) -> Option<&str> {
    match reply {
        LockReply::Held(LockView { holder, .. }) | LockReply::NotHeld(LockView { holder, .. }) => {
            holder.as_ref().map(|holder| &*holder.owner)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_lock_is_acquired_through_any_node_and_goes_to_who_waits_first() {
    let mut cluster = Cluster::new(3, 2);
    let [ann, bob, eve] = [1, 2, 3].map(|node| session(NodeId(node)));
    let first = token(&done(&mut cluster, ann, acquire("ann")));
    assert_eq!(holder(&done(&mut cluster, bob, acquire("bob"))), Some("ann"));
    for (by, owner) in [(eve, "eve"), (bob, "bob")] {
        ask(&mut cluster, by, 2, acquire(owner), WAITS_MS);
        cluster.run(50);
    }
    // Who does not wait does not go before those who do, and a holder asks again in front of them.
    let again = done(&mut cluster, ann, acquire("ann"));
    assert_eq!(token(&again), first);
    assert_eq!(done(&mut cluster, ann, release(first)), LockReply::Done);
    cluster.run(50);
    let eves = replies(&mut cluster, eve).remove(0).unwrap();
    assert!(token(&eves) > first);
    assert!(replies(&mut cluster, bob).is_empty(), "bob came behind eve");
    assert_eq!(holder(&done(&mut cluster, ann, acquire("ann"))), Some("eve"));
    // She says nothing more.
    cluster.run(LEASE_MS + 100);
    let bobs = replies(&mut cluster, bob).remove(0).unwrap();
    assert!(token(&bobs) > token(&eves));
    assert_eq!(holder(&done(&mut cluster, eve, renew(token(&eves)))), Some("bob"));
}

#[test]
fn who_waits_in_vain_or_is_gone_gets_no_lock() {
    let mut cluster = Cluster::new(3, 1);
    let [ann, bob, eve] = [1, 2, 3].map(|node| session(NodeId(node)));
    let first = token(&done(&mut cluster, ann, acquire("ann")));
    ask(&mut cluster, bob, 2, acquire("bob"), 1_000);
    ask(&mut cluster, eve, 2, acquire("eve"), WAITS_MS);
    cluster.run(900);
    assert!(replies(&mut cluster, bob).is_empty());
    cluster.run(200);
    assert_eq!(holder(replies(&mut cluster, bob)[0].as_ref().unwrap()), Some("ann"));
    cluster.end_session(eve, Ticket(9));
    cluster.run(50);
    assert_eq!(done(&mut cluster, ann, release(first)), LockReply::Done);
    cluster.run(50);
    assert!(matches!(done(&mut cluster, bob, acquire("bob")), LockReply::Acquired { .. }));
}

#[test]
fn a_lease_and_those_who_wait_outlive_the_leader() {
    for seed in 0..4 {
        let mut cluster = Cluster::new(3, 1);
        let of_lock = group(&mut cluster);
        let leader = cluster.leader(of_lock);
        let others: Vec<NodeId> = (1..=3).map(NodeId).filter(|node| *node != leader).collect();
        let (ann, bob) = (session(others[0]), session(others[1]));
        // Clocks of those who may lead next are wrong.
        cluster.wall_errors.insert(others[0], [0, 700, 3_600_000, -3_600_000][seed]);
        cluster.wall_errors.insert(others[1], [0, 900, 3_600_000, -3_600_000][seed]);
        let asked_ms = cluster.ms;
        let first = token(&done(&mut cluster, ann, acquire("ann")));
        ask(&mut cluster, bob, 2, acquire("bob"), WAITS_MS);
        cluster.run(50);
        depose(&mut cluster, of_lock);
        assert!(replies(&mut cluster, bob).is_empty());
        cluster.run(asked_ms + LEASE_MS - 10 - cluster.ms);
        assert!(replies(&mut cluster, bob).is_empty(), "{seed}: ann's lease runs");
        cluster.run(1_100);
        let told = replies(&mut cluster, bob);
        assert_eq!(told.len(), 1, "{seed}: a second more, and no longer");
        assert!(token(told[0].as_ref().unwrap()) > first);
        assert_eq!(holder(&done(&mut cluster, ann, renew(first))), Some("bob"));
    }
}

#[test]
fn a_holder_renews_at_the_next_leader_under_its_token() {
    let mut cluster = Cluster::new(3, 1);
    let of_lock = group(&mut cluster);
    let leader = cluster.leader(of_lock);
    let ann = session(NodeId(leader.0 % 3 + 1));
    let first = token(&done(&mut cluster, ann, acquire("ann")));
    for _ in 0..3 {
        let was = depose(&mut cluster, of_lock);
        if Shard::node_of(ann) == Some(was) {
            heal_all(&mut cluster);
        }
        let renewed = done(&mut cluster, ann, renew(first));
        assert!(
            matches!(renewed, LockReply::Acquired { token, is_new: false, .. } if token == first)
        );
        heal_all(&mut cluster);
    }
}

#[test]
fn leases_begin_anew_where_nobody_knows_what_time_it_is() {
    for error in [3_600_000, -3_600_000] {
        let mut cluster = Cluster::new(3, 1);
        let ann = session(NodeId(1));
        let first = token(&done(&mut cluster, ann, acquire("ann")));
        for node in (1..=3).map(NodeId) {
            cluster.wall_errors.insert(node, error);
        }
        for node in (1..=3).map(NodeId) {
            cluster.restart_alone(node);
        }
        heal_all(&mut cluster);
        cluster.run(2_000);
        let bob = session(NodeId(2));
        assert_eq!(holder(&done(&mut cluster, bob, acquire("bob"))), Some("ann"), "{error}");
        let renewed = done(&mut cluster, session(NodeId(1)), renew(first));
        assert_eq!(token(&renewed), first);
        cluster.run(LEASE_MS + 100);
        assert!(token(&done(&mut cluster, bob, acquire("bob"))) > first);
    }
}

#[test]
fn a_question_that_its_leader_did_not_answer_is_done_once_by_the_next() {
    let mut cluster = Cluster::new(3, 1);
    let of_lock = group(&mut cluster);
    let leader = cluster.leader(of_lock);
    let ann = session(NodeId(leader.0 % 3 + 1));
    let put = |by, expected| {
        let (vhost, name, value) = ("/".to_owned(), "job".to_owned(), Some(b"1"[..].into()));
        LockCommand::Put { vhost, name, by, expected: Some(expected), token: None, value }
    };
    // The entry is on its way to a majority, and the leader's word that it is there is not.
    ask(&mut cluster, ann, 3, put(1, 0), 0);
    cluster.run(2);
    depose(&mut cluster, of_lock);
    cluster.run(2_000);
    let told = replies(&mut cluster, ann);
    let [Ok(LockReply::Put { version })] = told[..] else { panic!("{told:?}") };
    assert!(matches!(done(&mut cluster, ann, put(2, version)), LockReply::Put { .. }));
}

#[test]
fn a_value_is_watched_across_nodes() {
    let mut cluster = Cluster::new(3, 1);
    let [ann, bob] = [1, 2].map(|node| session(NodeId(node)));
    let of_lock = group(&mut cluster);
    let (vhost, name) = ("/".to_owned(), "job".to_owned());
    let what = LockQuestion::Read { vhost, name, unlike: Some(0) };
    let spec = Box::new(LockSpec { what, wait_ms: WAITS_MS, is_again: false });
    cluster.ask(bob, Request::Lock { ticket: Ticket(4), group: of_lock, spec });
    cluster.run(500);
    assert!(replies(&mut cluster, bob).is_empty(), "there is no value");
    let (vhost, name, value) = ("/".to_owned(), "job".to_owned(), Some(b"1"[..].into()));
    let command = LockCommand::Put { vhost, name, by: 1, expected: None, token: None, value };
    let LockReply::Put { version } = done(&mut cluster, ann, command) else { panic!() };
    cluster.run(20);
    let told = replies(&mut cluster, bob);
    let [Ok(LockReply::Is(view))] = &told[..] else { panic!("{told:?}") };
    assert_eq!(view.value.as_ref().map(|value| value.version), Some(version));
}

#[test]
fn a_lock_that_nobody_asks_for_any_more_is_forgotten() {
    let mut cluster = Cluster::new(3, 1);
    let ann = session(NodeId(1));
    done(&mut cluster, ann, acquire("ann"));
    let of_lock = group(&mut cluster);
    let count = |cluster: &Cluster| -> Vec<usize> {
        let shards = cluster.cores.iter().flat_map(|core| &core.shards);
        let groups = shards.flat_map(Shard::groups).filter(|(group, _)| *group == of_lock);
        groups.map(|(_, group)| group.lock_count()).collect()
    };
    assert_eq!(count(&cluster), [1, 1, 1]);
    cluster.run(LEASE_MS + 1_200);
    assert_eq!(count(&cluster), [0, 0, 0]);
}

#[test]
fn there_are_no_locks_before_the_cluster_has_agreed_on_that() {
    let mut cluster = Cluster::at(3, 1, BEFORE);
    for node in [1, 2].map(NodeId) {
        cluster.speaks.insert(node, Version::LOCKS);
        cluster.restart(node);
        cluster.run(3000);
    }
    for by in [1, 2, 3].map(NodeId).map(session) {
        ask(&mut cluster, by, 1, acquire("ann"), 0);
        cluster.run(50);
        let not_yet = Err(NotLocked::NotYet { since: Version::LOCKS });
        assert_eq!(replies(&mut cluster, by), [not_yet], "{by:?}");
    }
}
