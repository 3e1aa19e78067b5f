//! Snapshots: in order, as fast as the throttle and the receiver let them.

use super::*;

#[test]
fn chunks_arrive_in_order_and_not_faster_than_the_throttle() {
    let (mut one, mut two) = (
        Start { bulk_bytes_per_second: 10_000_000, ..Start::node(1) }.start(),
        Start::node(2).start(),
    );
    introduce(&[&one, &two]);
    one.expect_up(2);
    two.expect_up(1);
    let started = Instant::now();
    let bulk = one.peers.open_bulk(NodeId(2)).unwrap();
    for seq in 0..10 {
        bulk.send(numbered(seq, 500_000)).unwrap();
    }
    let numbers: Vec<u64> = two.messages(1, 10).iter().map(number).collect();
    assert_eq!(numbers, (0..10).collect::<Vec<_>>());
    assert!(started.elapsed() >= Duration::from_millis(400), "{:?}", started.elapsed());
}

#[test]
fn a_receiver_that_is_busy_slows_the_sender_down() {
    let (one, two) =
        (Start::node(1).start(), Start { mailbox_bytes: 2 << 20, ..Start::node(2) }.start());
    introduce(&[&one, &two]);
    let bulk = one.peers.open_bulk(NodeId(2)).unwrap();
    let sent = Arc::new(AtomicU64::new(0));
    let sender = {
        let sent = Arc::clone(&sent);
        std::thread::spawn(move || {
            for seq in 0..64 {
                bulk.send(numbered(seq, 1 << 20)).unwrap();
                sent.fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    // Nobody takes anything: what fits sockets and mailbox is sent, the rest is not.
    let mut before = 0;
    wait_for(|| {
        std::thread::sleep(Duration::from_millis(300));
        let now = sent.load(Ordering::Relaxed);
        let is_stuck = now == before && now > 0;
        before = now;
        is_stuck.then_some(())
    });
    assert!(before < 60, "{before}");
    let mut two = two;
    two.expect_up(1);
    assert_eq!(two.messages(1, 64).len(), 64);
    sender.join().unwrap();
}

#[test]
fn a_handle_says_that_its_connection_is_gone() {
    let (one, two) = pair();
    assert!(one.peers.open_bulk(NodeId(9)).is_none());
    let bulk = one.peers.open_bulk(NodeId(2)).unwrap();
    bulk.send(numbered(1, 10)).unwrap();
    two.peers.stop();
    wait_for(|| bulk.send(numbered(2, 10)).err());
    assert!(bulk.is_broken());
}
