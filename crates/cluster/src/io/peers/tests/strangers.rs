//! Whatever connects to the peer port without being a member.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::*;
use crate::io::peers::greet::GREETING;
use crate::peer::handshake::{Challenge, encode_proof};

fn connect(node: &Node) -> TcpStream {
    let stream = TcpStream::connect(node.peers.local()).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream
}

/// Everything until the other side closes.
fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A reset is an end, too.
    let _ = stream.read_to_end(&mut bytes);
    bytes
}

fn refused(node: &Node) -> u64 {
    node.peers.counters().refused.load(Ordering::Relaxed)
}

#[test]
fn bytes_that_are_no_hello_are_closed_at_once_and_counted() {
    let mut node = Start::node(1).start();
    let inputs: [&[u8]; 5] = [
        b"AMQP\x00\x00\x09\x01",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        &[0xff; 100],
        &[0; 100],
        // A ping that is right, before the handshake.
        &[6, 0, 0, 0, 0, 0, 0, 0, 1, 32],
    ];
    for (number, input) in inputs.into_iter().enumerate() {
        let started = Instant::now();
        let mut stream = connect(&node);
        stream.write_all(input).unwrap();
        assert_eq!(read_to_end(&mut stream), b"");
        assert!(started.elapsed() < GREETING, "input {number}: {:?}", started.elapsed());
        wait_for(|| (refused(&node) == number as u64 + 1).then_some(()));
    }
    assert!(node.is_quiet());
}

#[test]
fn a_hello_cut_short_is_closed() {
    let node = Start::node(1).start();
    let mut stream = connect(&node);
    stream.write_all(&[60, 0, 0, 0, 1, 2, 3]).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(read_to_end(&mut stream), b"");
    wait_for(|| (refused(&node) == 1).then_some(()));
}

#[test]
fn who_says_nothing_or_dribbles_is_closed_in_time() {
    let node = Start::node(1).start();
    let started = Instant::now();
    let mut silent = connect(&node);
    let mut slow = connect(&node);
    let dribble = std::thread::spawn(move || {
        slow.write_all(&[90, 0, 0, 0]).unwrap();
        while slow.write_all(&[1]).is_ok() && started.elapsed() < TIMEOUT {
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    assert_eq!(read_to_end(&mut silent), b"");
    dribble.join().unwrap();
    assert!(started.elapsed() >= GREETING / 2);
    assert!(started.elapsed() < TIMEOUT, "{:?}", started.elapsed());
}

#[test]
fn strangers_do_not_keep_members_out() {
    let (mut one, two) = (Start::node(1).start(), Start::node(2).start());
    let strangers: Vec<TcpStream> = (0..200).map(|_| connect(&one)).collect();
    let counters = one.peers.counters();
    wait_for(|| (counters.turned_away.load(Ordering::Relaxed) > 0).then_some(()));
    introduce(&[&one, &two]);
    one.expect_up(2);
    drop(strangers);
}

#[test]
fn a_stranger_with_a_right_hello_and_no_secret_is_told_nothing() {
    let (mut one, mut two) =
        (Start::node(1).start(), Start { secret: "guess", ..Start::node(2) }.start());
    introduce(&[&one, &two]);
    let why = two.await_trouble(1);
    assert!(why.contains("cluster_secret"), "{why}");
    assert!(one.is_quiet() && two.is_quiet());
}

#[test]
fn before_the_secret_is_proved_neither_side_tells_who_it_is() {
    let mut node = Start::node(2).start();
    let told = |bytes: &[u8]| {
        let is_there = |what: &[u8]| bytes.windows(what.len()).any(|window| window == what);
        is_there(&CLUSTER.to_le_bytes()) || is_there(&72_u64.to_le_bytes())
    };
    let mut out = crate::peer::gather::Gather::default();
    Challenge { protocols: PROTOCOLS, nonce: [7; 16] }.encode(&mut out);
    encode_proof(&mut out, &[9; 32]);
    // It dials.
    let mut stream = connect(&node);
    stream.write_all(&crate::peer::tests::round_trip::written(&out, usize::MAX)).unwrap();
    let heard = read_to_end(&mut stream);
    assert!(!heard.is_empty() && !told(&heard), "{heard:?}");
    // It is dialed, at an address that it took from a member.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let node_1 = Address { node: NodeId(1), address, incarnation: None, boot: 0, stamp: 0 };
    node.peers.set_members(&[node_1]);
    let (mut stream, _) = listener.accept().unwrap();
    stream.write_all(&crate::peer::tests::round_trip::written(&out, usize::MAX)).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let heard = read_to_end(&mut stream);
    assert!(!heard.is_empty() && !told(&heard), "{heard:?}");
    assert!(node.is_quiet());
}
