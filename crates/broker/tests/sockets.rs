//! The shell: real sockets, a real node under them, and clients that misbehave.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test of the shell: it opens sockets and starts a node in a directory of its own"
)]

#[path = "support/wire.rs"]
#[allow(dead_code, reason = "scripts use the rest")]
mod wire;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use broker::Config;
use broker::io::broker::Broker;
use broker::io::describe::{ListedConnection, NotDescribed};
use broker::io::listener::{deepen_queue, serve};
use broker::limits::OUTBOUND_BYTES_MAX;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Longer than anything here takes; a test that waits so long has failed.
const TIMEOUT: Duration = Duration::from_secs(30);

struct Node {
    dir: PathBuf,
    address: SocketAddr,
    broker: Arc<Broker>,
    cluster: cluster::ClusterHandle,
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
}

impl Node {
    async fn start(name: &str, config: Config) -> Self {
        let dir = std::env::temp_dir().join(format!("millrace-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        let start = cluster::Config {
            data_dir: dir.clone(),
            groups: 2,
            shards: 1,
            wal_file_bytes: 1 << 20,
            commit_delay_us: 300,
            memory_limit: u64::MAX,
            disk_free_limit: 0,
            new_cluster: 7,
            version_max: machine::Version::NEWEST,
            reconcile_stop: false,
            peers: None,
        };
        let cluster =
            cluster::start(&start, &cluster::Failure::new(|_, why| panic!("{why}"))).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let broker = Broker::new(cluster.clone(), config).unwrap();
        let (stop, stopped) = watch::channel(false);
        let serving = tokio::spawn(serve(listener, None, Arc::clone(&broker), stopped));
        Self { dir, address, broker, cluster, stop, serving }
    }

    async fn end(self) {
        self.stop.send_replace(true);
        timeout(TIMEOUT, self.serving).await.expect("the listener ends").unwrap();
        let cluster = self.cluster;
        tokio::task::spawn_blocking(move || cluster.stop()).await.unwrap();
        let _ = std::fs::remove_dir_all(self.dir);
    }
}

struct Client {
    stream: TcpStream,
    methods: BTreeMap<String, wire::Spec>,
    received: Vec<u8>,
}

impl Client {
    async fn connect(node: &Node) -> Self {
        let stream = TcpStream::connect(node.address).await.unwrap();
        Self { stream, methods: wire::methods(), received: Vec::new() }
    }

    async fn login(node: &Node) -> Self {
        let mut client = Self::connect(node).await;
        client.send(b"AMQP\0\0\x09\x01").await;
        client.expect("0 connection.start ").await;
        client.say("0 connection.start-ok mechanism=PLAIN response=\\0guest\\0guest").await;
        client.expect("0 connection.tune ").await;
        client.say("0 connection.tune-ok channel-max=10 frame-max=131072 heartbeat=0").await;
        client.say("0 connection.open virtual-host=/").await;
        client.expect("0 connection.open-ok").await;
        client.say("1 channel.open").await;
        client.expect("1 channel.open-ok").await;
        client
    }

    async fn send(&mut self, bytes: &[u8]) {
        timeout(TIMEOUT, self.stream.write_all(bytes)).await.unwrap().unwrap();
    }

    fn bytes(&self, line: &str) -> Vec<u8> {
        let words = wire::words(line);
        let values = wire::pairs(&words[2..]);
        wire::message(&self.methods[&words[1]], words[0].parse().unwrap(), &values)
    }

    async fn say(&mut self, line: &str) {
        let bytes = self.bytes(line);
        self.send(&bytes).await;
    }

    /// The next frames, until a line begins so.
    async fn expect(&mut self, line: &str) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let whole = whole_frames(&self.received);
            let rest = self.received.split_off(whole);
            lines.extend(wire::lines(&self.methods, &self.received));
            self.received = rest;
            if lines.iter().any(|found| found.starts_with(line)) {
                return lines;
            }
            let mut more = [0; 65536];
            let read = timeout(TIMEOUT, self.stream.read(&mut more)).await;
            let count = read.unwrap_or_else(|_| panic!("no {line:?} in {lines:?}")).unwrap();
            assert!(count > 0, "closed before {line:?}, after {lines:?}");
            self.received.extend_from_slice(&more[..count]);
        }
    }

    /// Everything until the server closes, and how long that took.
    async fn until_closed(mut self) -> (Vec<u8>, Duration) {
        let begun = Instant::now();
        let mut all = self.received;
        // A reset is a close, too: the server need not read what is of no use.
        let _ = timeout(TIMEOUT, self.stream.read_to_end(&mut all)).await.expect("it is closed");
        (all, begun.elapsed())
    }
}

/// How many bytes of whole messages there are at the front.
fn whole_frames(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(head) = bytes.get(at..at + 7) {
        let size = u32::from_be_bytes(head[3..7].try_into().unwrap()) as usize;
        if bytes.len() < at + 8 + size {
            break;
        }
        at += 8 + size;
    }
    at
}

#[tokio::test]
async fn a_wrong_header_is_answered_before_the_socket_is_closed() {
    let node = Node::start("header", Config::default()).await;
    for wrong in [&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], b"AMQP\x03\x01\0\0", b"AMQP\0\0\x08\0"]
    {
        let mut client = Client::connect(&node).await;
        client.send(wrong).await;
        let (answer, _) = client.until_closed().await;
        assert_eq!(answer, b"AMQP\0\0\x09\x01", "after {wrong:?}");
    }
    node.end().await;
}

#[tokio::test]
async fn a_client_that_dribbles_is_closed_when_the_handshake_is_over() {
    // A login is a hash on purpose slow.
    let handshake = Duration::from_secs(3);
    let node = Node::start("dribble", Config { handshake, ..Config::default() }).await;
    let silent = Client::connect(&node).await;
    let mut dribbling = Client::connect(&node).await;
    dribbling.send(b"AMQ").await;
    let mut well_behaved = Client::login(&node).await;
    let (answer, after) = silent.until_closed().await;
    assert!(answer.is_empty() && after < TIMEOUT / 2, "{answer:?} {after:?}");
    let (answer, _) = dribbling.until_closed().await;
    assert!(answer.is_empty());
    well_behaved.say("1 queue.declare queue=q durable").await;
    well_behaved.expect("1 queue.declare-ok").await;
    assert_eq!(node.broker.metrics().limit_handshake.load(Ordering::Relaxed), 2);
    node.end().await;
}

#[tokio::test]
async fn a_refused_login_waits_for_its_close() {
    let refusal_delay = Duration::from_millis(400);
    let node = Node::start("refused", Config { refusal_delay, ..Config::default() }).await;
    let mut client = Client::connect(&node).await;
    client.send(b"AMQP\0\0\x09\x01").await;
    client.expect("0 connection.start ").await;
    client.say("0 connection.start-ok mechanism=PLAIN response=\\0guest\\0wrong").await;
    let (answer, after) = client.until_closed().await;
    assert!(answer.is_empty() && after >= refusal_delay, "{answer:?} {after:?}");
    node.end().await;
}

#[tokio::test]
async fn a_message_is_published_confirmed_consumed_and_acked() {
    let node = Node::start("round", Config::default()).await;
    let mut client = Client::login(&node).await;
    client.say("1 queue.declare queue=q durable").await;
    client.expect("1 queue.declare-ok").await;
    client.say("1 confirm.select").await;
    client.say("1 basic.consume queue=q consumer-tag=c").await;
    client.expect("1 basic.consume-ok").await;
    client.say("1 basic.publish routing-key=q p:delivery-mode=2 body=hello").await;
    let mut lines = client.expect("1 basic.ack").await;
    if lines.len() == 1 {
        lines.extend(client.expect("1 basic.deliver").await);
    }
    let delivered = "1 basic.deliver consumer-tag=c delivery-tag=1 routing-key=q p:delivery-mode=2 \
                     body=hello";
    assert!(lines.iter().any(|line| line == delivered), "{lines:?}");
    client.say("1 basic.ack delivery-tag=1").await;
    client.say("0 connection.close").await;
    client.expect("0 connection.close-ok").await;
    let (rest, _) = client.until_closed().await;
    assert!(rest.is_empty());
    node.end().await;
}

#[tokio::test]
async fn a_consumer_that_takes_no_bytes_is_closed_and_loses_nothing() {
    let write_stall = Duration::from_millis(500);
    let node = Node::start("stall", Config { write_stall, ..Config::default() }).await;
    let mut publisher = Client::login(&node).await;
    publisher.say("1 queue.declare queue=q durable").await;
    publisher.expect("1 queue.declare-ok").await;

    // A small receive buffer, and nobody reads it.
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let stream = socket.connect(node.address).await.unwrap();
    let mut deaf = Client { stream, methods: wire::methods(), received: Vec::new() };
    deaf.send(b"AMQP\0\0\x09\x01").await;
    deaf.expect("0 connection.start ").await;
    deaf.say("0 connection.start-ok mechanism=PLAIN response=\\0guest\\0guest").await;
    deaf.expect("0 connection.tune ").await;
    deaf.say("0 connection.tune-ok channel-max=10 frame-max=131072 heartbeat=0").await;
    deaf.say("0 connection.open virtual-host=/").await;
    deaf.say("1 channel.open").await;
    deaf.say("1 basic.consume queue=q consumer-tag=c").await;
    deaf.expect("1 basic.consume-ok").await;

    let body = "x".repeat(100_000);
    let one = publisher.bytes(&format!("1 basic.publish routing-key=q body={body}"));
    for _ in 0..200 {
        publisher.send(&one).await;
    }
    let metrics = node.broker.metrics();
    let begun = Instant::now();
    while metrics.limit_write_stall.load(Ordering::Relaxed) == 0 {
        assert!(begun.elapsed() < TIMEOUT, "it is never closed");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let counted = "1 queue.declare-ok queue=q message-count=200 consumer-count=0";
    let begun = Instant::now();
    loop {
        publisher.say("1 queue.declare queue=q durable passive").await;
        let lines = publisher.expect("1 queue.declare-ok").await;
        if lines[0] == counted {
            break;
        }
        assert!(begun.elapsed() < TIMEOUT, "{lines:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    node.end().await;
}

#[tokio::test]
async fn a_client_that_reads_late_is_read_again_at_once() {
    const BODY: usize = 100_000;
    const MESSAGES: usize = 400;
    // Nothing else would wake it soon.
    let config = Config { write_stall: Duration::from_secs(3600), ..Config::default() };
    let node = Node::start("late", config).await;
    let client = Client::login(&node).await;
    let body = "x".repeat(BODY);
    let one = client.bytes(&format!("1 basic.publish mandatory routing-key=nowhere body={body}"));
    let (mut read, mut write) = client.stream.into_split();
    // The end of what the client says would end the connection, whatever has not been read.
    let writing = tokio::spawn(async move {
        let written = write.write_all(&one.repeat(MESSAGES)).await;
        written.map(|()| write)
    });
    let metrics = node.broker.metrics();
    let begun = Instant::now();
    let full = || metrics.outbound_bytes.load(Ordering::Relaxed) >= OUTBOUND_BYTES_MAX as u64;
    while !full() {
        assert!(begun.elapsed() < TIMEOUT, "its returns do not wait");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (mut received, mut some) = (0, vec![0; 1 << 20]);
    while received < MESSAGES * BODY {
        let count = timeout(TIMEOUT, read.read(&mut some)).await.expect("it goes on").unwrap();
        assert!(count > 0, "the connection ends after {received} bytes");
        received += count;
    }
    let _write = writing.await.unwrap().unwrap();
    let begun = Instant::now();
    while metrics.outbound_bytes.load(Ordering::Relaxed) > 0 {
        assert!(begun.elapsed() < TIMEOUT, "what was read is not counted");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    node.end().await;
}

#[tokio::test]
async fn a_peer_that_vanishes_gives_back_what_it_held_and_its_exclusive_queues() {
    let node = Node::start("vanish", Config::default()).await;
    let mut lost = Client::login(&node).await;
    lost.say("1 queue.declare queue=mine exclusive").await;
    lost.expect("1 queue.declare-ok").await;
    lost.say("1 queue.declare queue=q durable").await;
    lost.expect("1 queue.declare-ok").await;
    lost.say("1 basic.publish routing-key=q body=x").await;
    lost.say("1 basic.get queue=q").await;
    lost.expect("1 basic.get-ok").await;
    drop(lost);
    let mut other = Client::login(&node).await;
    other.say("1 basic.consume queue=q consumer-tag=c").await;
    let lines = other.expect("1 basic.deliver").await;
    assert!(lines.iter().any(|line| line.contains(" redelivered ")), "{lines:?}");
    let begun = Instant::now();
    loop {
        other.say("2 channel.open").await;
        other.say("2 queue.declare queue=mine passive").await;
        let lines = other.expect("2 channel.close").await;
        if lines.iter().any(|line| line.contains("reply-code=404")) {
            break;
        }
        assert!(begun.elapsed() < TIMEOUT, "{lines:?}");
        other.say("2 channel.close-ok").await;
    }
    node.end().await;
}

#[tokio::test]
async fn when_the_node_stops_clients_are_told_and_silent_ones_are_dropped() {
    let close_wait = Duration::from_millis(300);
    let node = Node::start("stop", Config { close_wait, ..Config::default() }).await;
    let mut polite = Client::login(&node).await;
    let mut silent = Client::login(&node).await;
    node.stop.send_replace(true);
    for client in [&mut polite, &mut silent] {
        let lines = client.expect("0 connection.close ").await;
        assert!(lines[0].contains("reply-code=320"), "{lines:?}");
    }
    polite.say("0 connection.close-ok").await;
    polite.until_closed().await;
    let (_, after) = silent.until_closed().await;
    assert!(after < TIMEOUT / 2);
    let refused = TcpStream::connect(node.address).await.is_err();
    node.end().await;
    assert!(refused, "nobody is let in any more");
}

#[tokio::test]
async fn silent_strangers_keep_nobody_out() {
    let node = Node::start("strangers", Config::default()).await;
    // All of them come from one address, which may have half of the places.
    let bound = broker::limits::UNAUTHENTICATED_MAX / 2;
    let mut strangers = Vec::new();
    for _ in 0..bound {
        strangers.push(Client::connect(&node).await);
    }
    let begun = Instant::now();
    while node.broker.connection_count() < bound {
        assert!(begun.elapsed() < TIMEOUT, "not all are let in");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let metrics = node.broker.metrics();
    assert_eq!(metrics.limit_connections.load(Ordering::Relaxed), 0);
    let mut well_behaved = Client::login(&node).await;
    assert_eq!(metrics.limit_connections.load(Ordering::Relaxed), 1);
    let (answer, _) = strangers.remove(0).until_closed().await;
    assert!(answer.is_empty(), "the oldest makes way");
    drop(strangers);
    let begun = Instant::now();
    while node.broker.connection_count() > 1 {
        assert!(begun.elapsed() < TIMEOUT, "places are given back");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    well_behaved.say("1 queue.declare queue=q durable").await;
    well_behaved.expect("1 queue.declare-ok").await;
    node.end().await;
}

#[tokio::test]
async fn a_client_that_finds_all_places_taken_is_turned_away_until_one_is_free() {
    let node = Node::start("full", Config { connections_max: 4, ..Config::default() }).await;
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(Client::login(&node).await);
    }
    let (answer, _) = Client::connect(&node).await.until_closed().await;
    assert!(answer.is_empty(), "{answer:?}");
    clients.pop();
    let begun = Instant::now();
    while node.broker.connection_count() > 3 {
        assert!(begun.elapsed() < TIMEOUT, "the place is given back");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    clients.push(Client::login(&node).await);
    node.end().await;
}

#[tokio::test]
async fn publishers_have_together_no_more_in_flight_than_they_may_and_all_are_confirmed() {
    const MAX: u64 = 1 << 20;
    const BODY: usize = 100_000;
    let config = Config { in_flight_bytes_max: MAX, ..Config::default() };
    let node = Node::start("in-flight", config).await;
    let mut one = Client::login(&node).await;
    one.say("1 queue.declare queue=q durable").await;
    one.expect("1 queue.declare-ok").await;
    let message = one.bytes(&format!("1 basic.publish routing-key=q body={}", "x".repeat(BODY)));
    let mut publishing = tokio::task::JoinSet::new();
    for _ in 0..64 {
        let mut client = Client::login(&node).await;
        client.say("1 confirm.select").await;
        client.expect("1 confirm.select-ok").await;
        let message = message.clone();
        publishing.spawn(async move {
            client.send(&message).await;
            client.expect("1 basic.ack").await;
        });
    }
    let in_flight = || node.broker.metrics().in_flight_bytes.load(Ordering::Relaxed);
    let mut most = 0;
    let all = async {
        while let Some(done) = publishing.join_next().await {
            done.unwrap();
        }
    };
    let mut all = std::pin::pin!(timeout(TIMEOUT, all));
    loop {
        tokio::select! {
            biased;
            () = tokio::task::yield_now() => most = most.max(in_flight()),
            done = &mut all => break done.expect("all are confirmed"),
        }
    }
    // The last that is let in may be as large as messages are.
    assert!(most <= MAX + 2 * BODY as u64, "{most} bytes were in flight");
    one.say("1 queue.declare queue=q durable passive").await;
    let lines = one.expect("1 queue.declare-ok").await;
    assert!(lines[0].contains("message-count=64"), "{lines:?}");
    assert_eq!(in_flight(), 0, "what is confirmed is not counted");
    node.end().await;
}

#[tokio::test]
async fn an_avalanche_waits_in_the_kernels_queue() {
    let allowed = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
    let allowed: usize = allowed.trim().parse().unwrap();
    // Nobody accepts. A connection that finds no room in the queue is not made.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    deepen_queue(&listener).unwrap();
    let address = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    for _ in 0..allowed.min(900) {
        let stream = timeout(TIMEOUT, TcpStream::connect(address)).await;
        waiting.push(stream.expect("there is room in the queue").unwrap());
    }
}

#[tokio::test]
async fn connections_say_what_they_are_doing_when_they_are_asked() {
    let node = Node::start("describe", Config::default()).await;
    let mut reader = Client::login(&node).await;
    reader.say("1 queue.declare queue=q durable").await;
    reader.expect("1 queue.declare-ok").await;
    reader.say("1 basic.qos prefetch-count=10").await;
    reader.say("1 basic.consume queue=q consumer-tag=c").await;
    reader.expect("1 basic.consume-ok").await;
    let mut other = Client::login(&node).await;
    other.say("1 basic.publish routing-key=q body=hello").await;
    reader.expect("1 basic.deliver").await;
    let stranger = Client::connect(&node).await;
    let broker = &node.broker;
    let open = broker.connections();
    let begun = Instant::now();
    while broker.connection_count() < 3 {
        assert!(begun.elapsed() < TIMEOUT, "the stranger is not let in");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }

    let first = open.list(None, 2).await;
    assert_eq!((first.connections.len(), first.count), (2, 3));
    let rest = open.list(first.next, 100).await;
    assert_eq!((rest.connections.len(), rest.next), (1, None));
    let user = |listed: &ListedConnection| listed.line.as_ref().unwrap().user.clone();
    assert_eq!(user(&first.connections[0]), "guest");
    assert_eq!(user(&rest.connections[0]), "", "who has not logged in");
    let id = first.connections[0].id;
    assert_eq!(id.to_string(), "1-1");
    assert_eq!(first.connections[0].peer, reader.stream.local_addr().unwrap());

    let described = open.describe(id).await.unwrap();
    assert_eq!((described.line.channel_count, described.line.consumer_count), (1, 1));
    assert_eq!(described.channels[0].unacked, 1);
    let channel = open.channel(id, 1).await.unwrap();
    assert_eq!(channel.consumers[0].tag, "c");
    let consumer = open.consumer(id, 1, "c").await.unwrap();
    assert_eq!((consumer.prefetch, consumer.held, consumer.credit), (10, 1, 9));
    assert_eq!(open.channel(id, 2).await, Err(NotDescribed::NoChannel));
    assert_eq!(open.consumer(id, 1, "d").await, Err(NotDescribed::NoConsumer));
    let nobody = "1-99".parse().unwrap();
    assert_eq!(open.describe(nobody).await, Err(NotDescribed::NoConnection));

    drop(reader);
    let begun = Instant::now();
    while open.describe(id).await != Err(NotDescribed::NoConnection) {
        assert!(begun.elapsed() < TIMEOUT, "it is still listed");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop((other, stranger));
    node.end().await;
}

#[tokio::test]
async fn a_connection_whose_client_takes_no_bytes_says_what_it_is_doing() {
    let config = Config { write_stall: Duration::from_secs(3600), ..Config::default() };
    let node = Node::start("describe-deaf", config).await;
    let client = Client::login(&node).await;
    let body = "x".repeat(100_000);
    let one = client.bytes(&format!("1 basic.publish mandatory routing-key=nowhere body={body}"));
    // Returns that nobody reads.
    let (read, mut write) = client.stream.into_split();
    let writing = tokio::spawn(async move { write.write_all(&one.repeat(400)).await });
    let metrics = node.broker.metrics();
    let begun = Instant::now();
    while metrics.outbound_bytes.load(Ordering::Relaxed) < OUTBOUND_BYTES_MAX as u64 {
        assert!(begun.elapsed() < TIMEOUT, "its returns do not wait");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let id = "1-1".parse().unwrap();
    let described = node.broker.connections().describe(id).await.unwrap();
    assert!(described.line.outbound_bytes >= OUTBOUND_BYTES_MAX as u64, "{:?}", described.line);
    drop(read);
    writing.abort();
    node.end().await;
}
