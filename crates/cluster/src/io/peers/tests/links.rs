//! Data connections: order, ends, silence, overflow, and who is refused.

use raft::eraftpb;

use super::proxy::Proxy;
use super::*;
use crate::io::peers::link::SILENCE;
use crate::io::peers::outbox::OUTBOX_BYTES_MAX;

/// Node 1 and node 2, with a network between them.
fn pair_through_proxy() -> (Node, Node, Proxy) {
    let (mut one, mut two) = (Start::node(1).start(), Start::node(2).start());
    let proxy = Proxy::to(one.peers.local());
    one.peers.set_members(&[two.address()]);
    // The greater id dials.
    let address = Address { address: proxy.address.to_string(), ..one.address() };
    two.peers.set_members(&[address]);
    one.expect_up(2);
    two.expect_up(1);
    (one, two, proxy)
}

#[test]
fn messages_arrive_in_order_in_both_directions() {
    let (mut one, mut two) = pair();
    for seq in 0..500 {
        let bytes = [0, 100, 5000, 300_000][seq as usize % 4];
        one.peers.send(NodeId(2), vec![numbered(2 * seq, bytes), numbered(2 * seq + 1, 10)]);
        two.peers.send(NodeId(1), vec![numbered(2 * seq, 10), numbered(2 * seq + 1, bytes)]);
    }
    for (node, peer) in [(&mut one, 2), (&mut two, 1)] {
        let messages = node.messages(peer, 1000);
        let numbers: Vec<u64> = messages.iter().map(number).collect();
        assert_eq!(numbers, (0..1000).collect::<Vec<_>>());
        assert!(messages.iter().all(|message| match message {
            Message::Snapshot { group, chunk } => chunk.iter().all(|byte| *byte == group.0 as u8),
            _ => false,
        }));
    }
}

#[test]
fn a_node_that_ends_is_missed_at_once() {
    let (one, mut two) = pair();
    one.peers.stop();
    two.expect_down(1);
    let why = two.await_trouble(1);
    assert!(!why.contains("sent nothing"), "it was not its silence: {why}");
}

#[test]
fn a_connection_that_is_cut_is_made_again() {
    let (mut one, mut two, proxy) = pair_through_proxy();
    for round in 0..3 {
        proxy.cut();
        for (node, peer) in [(&mut one, 2), (&mut two, 1)] {
            node.expect_down(peer);
            node.expect_up(peer);
            assert_eq!(node.peers.connection(NodeId(peer)), Some(round + 2));
        }
        one.peers.send(NodeId(2), vec![numbered(round, 10)]);
        assert_eq!(number(&two.messages(1, 1)[0]), round);
    }
}

#[test]
fn a_silent_node_is_taken_for_gone_and_found_again() {
    let (mut one, mut two, proxy) = pair_through_proxy();
    let held = Instant::now();
    proxy.hold(true);
    one.expect_down(2);
    two.expect_down(1);
    assert!(held.elapsed() >= SILENCE / 2, "{:?}", held.elapsed());
    proxy.hold(false);
    proxy.cut();
    one.expect_up(2);
    two.expect_up(1);
}

#[test]
fn an_idle_connection_stays() {
    let (mut one, mut two) = pair();
    std::thread::sleep(SILENCE * 3 / 2);
    assert!(one.is_quiet() && two.is_quiet());
}

#[test]
fn when_too_much_waits_the_connection_is_made_anew() {
    let (mut one, mut two) = pair();
    let chunk = 1 << 20;
    let many = (0..=OUTBOX_BYTES_MAX / chunk).map(|seq| numbered(seq as u64, chunk)).collect();
    one.peers.send(NodeId(2), many);
    one.expect_down(2);
    two.expect_down(1);
    one.expect_up(2);
    two.expect_up(1);
    one.peers.send(NodeId(2), vec![numbered(7, 10)]);
    assert_eq!(number(&two.messages(1, 1)[0]), 7);
}

#[test]
fn a_message_of_raft_under_a_wrong_name_is_dropped() {
    let (one, mut two) = pair();
    let raft = |from, to| Message::Raft {
        group: GroupId(1),
        message: eraftpb::Message { from, to, ..append() },
    };
    one.peers.send(NodeId(2), vec![raft(3, 2), raft(1, 1), raft(1, 2)]);
    let [Message::Raft { message, .. }] = &two.messages(1, 1)[..] else { panic!() };
    assert_eq!((message.from, message.to), (1, 2));
    assert_eq!(two.peers.counters().misdirected.load(Ordering::Relaxed), 2);
}

fn append() -> eraftpb::Message {
    eraftpb::Message { msg_type: eraftpb::MessageType::MsgAppend, ..eraftpb::Message::default() }
}

#[test]
fn a_node_that_starts_again_is_known_again() {
    let (mut one, two) = pair();
    two.peers.stop();
    one.expect_down(2);
    let mut again = Start { boot: 2, ..Start::node(2) }.start();
    again.peers.set_members(&[one.address()]);
    one.expect_up(2);
    again.expect_up(1);
    assert_eq!(one.kept_incarnation(), Some(72));
}

#[test]
fn a_wiped_node_is_refused_until_the_operator_says_so() {
    let (mut one, two) = pair();
    two.peers.stop();
    one.expect_down(2);
    let mut wiped = Start { incarnation: 99, ..Start::node(2) }.start();
    wiped.peers.set_members(&[one.address()]);
    let why = wiped.await_trouble(1);
    assert!(why.contains("`millrace cluster replace 2 NEW`"), "{why}");
    assert!(one.is_quiet() && wiped.is_quiet());
    assert_eq!(one.kept_incarnation(), Some(72));
    one.peers.set_members(&[]);
    one.peers.set_members(&[wiped.address()]);
    one.expect_up(2);
    wiped.expect_up(1);
    assert_eq!(one.kept_incarnation(), Some(99));
}

#[test]
fn an_old_copy_of_a_data_directory_is_refused() {
    let (mut one, mut two) = (Start::node(1).start(), Start { boot: 5, ..Start::node(2) }.start());
    introduce(&[&one, &two]);
    one.expect_up(2);
    two.expect_up(1);
    two.peers.stop();
    one.expect_down(2);
    let old = Start { boot: 4, ..Start::node(2) }.start();
    old.peers.set_members(&[one.address()]);
    let why = old.await_trouble(1);
    assert!(why.contains("an old copy"), "{why}");
}

#[test]
fn nodes_of_another_cluster_or_without_the_secret_are_refused() {
    let one = Start::node(1).start();
    let table = [
        (Start { cluster: 0xbeef, ..Start::node(2) }, "the same --peers list"),
        (Start { secret: "other", ..Start::node(2) }, "the same cluster_secret"),
        (Start::node(3), "`millrace cluster add`"),
    ];
    for (start, words) in table {
        let mut other = start.start();
        other.peers.set_members(&[one.address()]);
        one.peers.set_members(&[Address { node: NodeId(2), ..other.address() }]);
        let why = other.await_trouble(1);
        assert!(why.contains(words), "{why}");
        assert!(other.is_quiet());
    }
}

#[test]
fn two_nodes_with_one_id_are_refused() {
    let one = Start::node(2).start();
    let other = Start { incarnation: 5, ..Start::node(2) }.start();
    // It takes the other for node 1, and dials it.
    other.peers.set_members(&[Address { node: NodeId(1), ..one.address() }]);
    let why = other.await_trouble(1);
    assert!(why.contains("its own --node-id") || why.contains("correct the --peers"), "{why}");
}

#[test]
fn a_member_that_is_removed_is_gone() {
    let (mut one, mut two) = pair();
    one.peers.set_members(&[]);
    one.expect_down(2);
    two.expect_down(1);
    let why = two.await_trouble(1);
    assert!(why.contains("`millrace cluster add`"), "{why}");
}

#[test]
fn a_member_that_was_removed_is_told_so_for_good() {
    let (mut one, mut two) = pair();
    one.peers.set_retired([NodeId(2)].into());
    one.peers.set_members(&[]);
    one.expect_down(2);
    two.expect_down(1);
    let why = two.await_expulsion();
    assert!(why.contains("node 2 was removed") && why.contains("stop it"), "{why}");
}

#[test]
fn a_member_that_was_removed_and_dials_nobody_is_told_so_too() {
    let (mut one, mut two) = pair();
    two.peers.set_retired([NodeId(1)].into());
    two.peers.set_members(&[]);
    two.expect_down(1);
    one.expect_down(2);
    let why = one.await_expulsion();
    assert!(why.contains("node 1 was removed"), "{why}");
}

#[test]
fn a_start_that_is_known_from_before_or_from_the_log_is_not_forgotten() {
    // Node 1 has started since it met node 2, and has its start from its disk or the log.
    let mut one = Start::node(1).start();
    let mut old = Start { boot: 5, ..Start::node(2) }.start();
    let incarnation = Some(72);
    one.peers.set_members(&[Address { incarnation, boot: 7, ..old.address() }]);
    old.peers.set_members(&[one.address()]);
    let why = old.await_expulsion();
    assert!(why.contains("is an old copy"), "{why}");
    assert!(one.is_quiet() && old.is_quiet());
}

#[test]
fn a_copy_of_a_running_nodes_directory_is_refused_while_that_node_is_there() {
    let (mut one, two) = pair();
    let copy = Start { boot: 2, ..Start::node(2) }.start();
    copy.peers.set_members(&[one.address()]);
    let why = copy.await_trouble(1);
    assert!(why.contains("node 2 is here already"), "{why}");
    assert!(one.is_quiet(), "it goes on with the other");
    // The other has ended: it was no copy, but that node's next start.
    two.peers.stop();
    one.expect_down(2);
    one.expect_up(2);
}

#[test]
fn a_node_whose_next_start_is_in_the_log_is_let_go_and_ends() {
    let (mut one, mut two) = pair();
    let incarnation = Some(72);
    one.peers.set_members(&[Address { incarnation, boot: 2, ..two.address() }]);
    one.expect_down(2);
    two.expect_down(1);
    let why = two.await_expulsion();
    assert!(why.contains("is an old copy"), "{why}");
}

#[test]
fn what_a_running_node_has_renewed_is_kept_and_a_copy_from_before_is_refused() {
    let (mut one, mut two) = pair();
    let kept = |node: &Node| {
        node.peers.keep_news();
        let remembered = node.remembered.lock().unwrap();
        (remembered[0].boot, remembered[0].stamp)
    };
    assert_eq!(kept(&one), (1, 1));
    two.peers.send_to_all(|| Message::Renewed { boot: 1, stamp: 50 });
    wait_for(|| (kept(&one) == (1, 50)).then_some(()));
    // What a start says that is not the one that is here does not count.
    two.peers.send_to_all(|| Message::Renewed { boot: 9, stamp: 90 });
    two.peers.send_to_all(|| Message::Renewed { boot: 1, stamp: 60 });
    wait_for(|| (kept(&one) == (1, 60)).then_some(()));
    assert!(one.is_quiet(), "no shard hears of it");
    // The same process comes back.
    let connection = one.peers.connection(NodeId(2)).unwrap();
    two.peers.set_members(&[]);
    one.expect_down(2);
    two.expect_down(1);
    two.peers.set_members(&[one.address()]);
    one.expect_up(2);
    assert_ne!(one.peers.connection(NodeId(2)), Some(connection));
    two.peers.stop();
    one.expect_down(2);
    // A copy that was made before the last renewal.
    let copy = Start { boot: 70, last_boot: 50, ..Start::node(2) }.start();
    copy.peers.set_members(&[one.address()]);
    let why = copy.await_expulsion();
    assert!(why.contains("is an old copy"), "{why}");
    // Its next start.
    let next = Start { boot: 71, last_boot: 60, ..Start::node(2) }.start();
    next.peers.set_members(&[one.address()]);
    one.expect_up(2);
    assert_eq!(kept(&one), (71, 71));
}
