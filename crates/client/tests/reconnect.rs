//! The handles against a small scripted server on loopback: what happens when connections end.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test with a server of its own opens sockets and starts tasks"
)]

use std::time::Duration;

use amqp::{Decoder, Encoder, Frame, Method, TableRef, basic, channel, confirm, connection, queue};
use bytes::{Buf, BytesMut};
use client::{Address, Consumer, ConsumerOptions, Error, Options, Outcome, Publisher, Url};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const FRAME_MAX: u32 = 4096;

/// The server's end of one connection.
struct Peer {
    socket: TcpStream,
    received: BytesMut,
    output: BytesMut,
}

/// What a client sent, owned.
#[derive(Debug, PartialEq)]
enum Sent {
    Method(&'static str),
    /// A whole publish: its body.
    Publish(String),
    Ack(u64, bool),
    Nothing,
}

impl Peer {
    /// Accepts a connection and does the handshake, channel 1 included.
    async fn accept(listener: &TcpListener) -> Self {
        let (socket, _) = listener.accept().await.unwrap();
        let mut peer = Self { socket, received: BytesMut::new(), output: BytesMut::new() };
        while peer.received.len() < 8 {
            peer.socket.read_buf(&mut peer.received).await.unwrap();
        }
        peer.received.advance(8);
        peer.say(&Method::ConnectionStart(connection::Start {
            version_major: 0,
            version_minor: 9,
            server_properties: TableRef::default(),
            mechanisms: b"PLAIN",
            locales: b"en_US",
        }));
        peer.expect("connection.start-ok").await;
        let tune = connection::Tune { channel_max: 10, frame_max: FRAME_MAX, heartbeat: 60 };
        peer.say(&Method::ConnectionTune(tune));
        peer.expect("connection.tune-ok").await;
        peer.expect("connection.open").await;
        peer.say(&Method::ConnectionOpenOk(connection::OpenOk));
        peer.expect("channel.open").await;
        peer.say(&Method::ChannelOpenOk(channel::OpenOk));
        peer
    }

    fn say(&mut self, method: &Method<'_>) {
        let channel = u16::from(method.ids().0 != 10);
        Encoder::new(&mut self.output, FRAME_MAX).method(channel, method);
    }

    fn deliver(&mut self, tag: u64, redelivered: bool, body: &str) {
        let (tag_name, address, none) = (b"\x01c", b"\x00\x01q", [0, 0]);
        let body = body.as_bytes();
        let out = &mut self.output;
        amqp::encode_deliver(out, FRAME_MAX, 1, tag_name, tag, redelivered, address, &none, body);
    }

    async fn expect(&mut self, name: &'static str) {
        assert_eq!(self.next().await, Sent::Method(name));
    }

    /// The next method, publish or ack; sends what waits before it waits itself.
    async fn next(&mut self) -> Sent {
        let mut body = None;
        loop {
            match self.frame().await {
                Some((true, Sent::Publish(_))) => body = Some(String::new()),
                Some((_, Sent::Publish(part))) => {
                    return Sent::Publish(body.unwrap_or_default() + &part);
                }
                Some((_, Sent::Nothing)) => (),
                Some((_, sent)) => return sent,
                None => return Sent::Nothing,
            }
        }
    }

    async fn frame(&mut self) -> Option<(bool, Sent)> {
        self.socket.write_all_buf(&mut self.output).await.unwrap();
        let decoder = Decoder::new(FRAME_MAX);
        loop {
            if let Some((frame, taken)) = decoder.decode(&self.received).unwrap() {
                let sent = match frame {
                    Frame::Method { payload, .. } => match Method::decode(payload).unwrap() {
                        Method::BasicPublish(_) => (true, Sent::Publish(String::new())),
                        Method::BasicAck(ack) => (true, Sent::Ack(ack.delivery_tag, ack.multiple)),
                        method => (true, Sent::Method(method.name())),
                    },
                    Frame::Body { payload, .. } => {
                        (false, Sent::Publish(String::from_utf8(payload.to_vec()).unwrap()))
                    }
                    Frame::Header { .. } | Frame::Heartbeat { .. } => (false, Sent::Nothing),
                };
                self.received.advance(taken);
                return Some(sent);
            }
            if self.socket.read_buf(&mut self.received).await.unwrap_or(0) == 0 {
                return None;
            }
        }
    }

    /// Answers the client's close.
    async fn goodbye(mut self) {
        self.expect("connection.close").await;
        self.say(&Method::ConnectionCloseOk(connection::CloseOk));
        self.socket.write_all_buf(&mut self.output).await.unwrap();
    }

    async fn select_confirms(&mut self) {
        self.expect("confirm.select").await;
        self.say(&Method::ConfirmSelectOk(confirm::SelectOk));
    }

    fn ack(&mut self, delivery_tag: u64, multiple: bool) {
        self.say(&Method::BasicAck(basic::Ack { delivery_tag, multiple }));
    }

    async fn start_consumer(&mut self) {
        self.expect("basic.qos").await;
        self.say(&Method::BasicQosOk(basic::QosOk));
        self.expect("basic.consume").await;
        self.say(&Method::BasicConsumeOk(basic::ConsumeOk { consumer_tag: "c" }));
    }
}

async fn listen() -> (TcpListener, Url) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("amqp://127.0.0.1:{}", listener.local_addr().unwrap().port());
    (listener, url.parse().unwrap())
}

fn options() -> Options {
    Options { seed: Some(1), ..Options::default() }
}

#[tokio::test]
async fn what_was_unconfirmed_when_the_connection_was_lost_is_published_again() {
    let (listener, url) = listen().await;
    let server = tokio::spawn(async move {
        let mut peer = Peer::accept(&listener).await;
        peer.select_confirms().await;
        for body in ["a", "b", "c"] {
            assert_eq!(peer.next().await, Sent::Publish(body.into()));
        }
        peer.ack(2, false);
        peer.socket.write_all_buf(&mut peer.output).await.unwrap();
        drop(peer);

        let mut peer = Peer::accept(&listener).await;
        peer.select_confirms().await;
        for body in ["a", "c"] {
            assert_eq!(peer.next().await, Sent::Publish(body.into()));
        }
        peer.ack(2, true);
        peer.goodbye().await;
    });
    let mut publisher = Publisher::open(&url, &options(), 10).await.unwrap();
    for body in ["a", "b", "c"] {
        let properties = amqp::Properties::default();
        publisher.publish(Address::queue("q"), &properties, body.as_bytes()).await.unwrap();
    }
    let settled = publisher.close().await.unwrap();
    assert_eq!((settled.confirmed, settled.is_clean()), (3, true));
    server.await.unwrap();
}

#[tokio::test]
async fn deliveries_of_a_lost_connection_come_again_and_their_old_tags_mean_nothing() {
    let (listener, url) = listen().await;
    let server = tokio::spawn(async move {
        let mut peer = Peer::accept(&listener).await;
        peer.start_consumer().await;
        peer.deliver(1, false, "a");
        peer.socket.write_all_buf(&mut peer.output).await.unwrap();
        drop(peer);

        let mut peer = Peer::accept(&listener).await;
        peer.start_consumer().await;
        peer.deliver(1, true, "a");
        peer.deliver(2, false, "b");
        assert_eq!(peer.next().await, Sent::Ack(2, true));
        peer.goodbye().await;
    });
    let how = ConsumerOptions { ack_wait: Duration::from_secs(60), ..ConsumerOptions::default() };
    let mut consumer = Consumer::open(&url, &options(), "q", how).await.unwrap();
    let first = consumer.next().await.unwrap();
    let again = consumer.next().await.unwrap();
    assert_eq!((&first.body[..], &again.body[..]), (&b"a"[..], &b"a"[..]));
    assert!(!first.redelivered && again.redelivered);
    let second = consumer.next().await.unwrap();
    for delivery in [&first, &again, &second] {
        consumer.settle(delivery.tag, Outcome::Done).unwrap();
    }
    consumer.close().await.unwrap();
    server.await.unwrap();
}

#[tokio::test]
async fn acknowledgements_go_out_after_their_wait_without_further_deliveries() {
    let (listener, url) = listen().await;
    let server = tokio::spawn(async move {
        let mut peer = Peer::accept(&listener).await;
        peer.start_consumer().await;
        peer.deliver(1, false, "a");
        assert_eq!(peer.next().await, Sent::Ack(1, false));
        peer.deliver(2, false, "b");
        peer.goodbye().await;
    });
    let mut consumer =
        Consumer::open(&url, &options(), "q", ConsumerOptions::default()).await.unwrap();
    let delivery = consumer.next().await.unwrap();
    consumer.settle(delivery.tag, Outcome::Done).unwrap();
    // The server sends the second only once the first is acknowledged.
    assert_eq!(&consumer.next().await.unwrap().body[..], b"b");
    consumer.close().await.unwrap();
    server.await.unwrap();
}

#[tokio::test]
async fn a_refusal_is_an_error_at_once_and_not_another_attempt() {
    let (listener, url) = listen().await;
    let server = tokio::spawn(async move {
        let mut peer = Peer::accept(&listener).await;
        peer.expect("basic.qos").await;
        peer.say(&Method::BasicQosOk(basic::QosOk));
        peer.expect("basic.consume").await;
        let reply_text = "NOT_FOUND - no queue 'q' in vhost '/'";
        let close = channel::Close { reply_code: 404, reply_text, class_id: 60, method_id: 20 };
        peer.say(&Method::ChannelClose(close));
        peer.next().await;
    });
    let how = ConsumerOptions::default();
    let refused = Consumer::open(&url, &options(), "q", how).await.err().unwrap();
    assert_eq!(refused.code(), Some(404));
    server.await.unwrap();
}

#[tokio::test]
async fn a_blocked_publisher_waits_until_it_is_unblocked() {
    let (listener, url) = listen().await;
    let server = tokio::spawn(async move {
        let mut peer = Peer::accept(&listener).await;
        peer.select_confirms().await;
        assert_eq!(peer.next().await, Sent::Publish("a".into()));
        peer.say(&Method::ConnectionBlocked(connection::Blocked { reason: "low on memory" }));
        peer.ack(1, false);
        peer.say(&Method::ConnectionUnblocked(connection::Unblocked));
        assert_eq!(peer.next().await, Sent::Publish("b".into()));
        peer.ack(2, false);
        peer.goodbye().await;
    });
    let mut publisher = Publisher::open(&url, &options(), 1).await.unwrap();
    let properties = amqp::Properties::default();
    for body in ["a", "b"] {
        publisher.publish(Address::queue("q"), &properties, body.as_bytes()).await.unwrap();
    }
    assert_eq!(publisher.close().await.unwrap().confirmed, 2);
    server.await.unwrap();
}

#[tokio::test]
async fn a_server_that_never_comes_back_is_given_up_after_the_agreed_time() {
    let (listener, url) = listen().await;
    drop(listener);
    let options = Options { retry_for: Duration::from_millis(200), ..options() };
    let error = Publisher::open(&url, &options, 10).await.err().unwrap();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
}

#[tokio::test]
async fn a_refused_declaration_leaves_the_connection_good_for_the_next() {
    let (listener, url) = listen().await;
    let server = tokio::spawn(async move {
        let mut peer = Peer::accept(&listener).await;
        peer.expect("queue.declare").await;
        let reply_text = "PRECONDITION_FAILED - inequivalent arg 'durable'";
        let close = channel::Close { reply_code: 406, reply_text, class_id: 50, method_id: 10 };
        peer.say(&Method::ChannelClose(close));
        peer.expect("channel.close-ok").await;
        // The next request opens channel 2.
        peer.expect("channel.open").await;
        Encoder::new(&mut peer.output, FRAME_MAX)
            .method(2, &Method::ChannelOpenOk(channel::OpenOk));
        peer.expect("queue.declare").await;
        let ok = queue::DeclareOk { queue: "q", message_count: 7, consumer_count: 0 };
        Encoder::new(&mut peer.output, FRAME_MAX).method(2, &Method::QueueDeclareOk(ok));
        peer.goodbye().await;
    });
    let mut connection = client::Connection::open(&url, &options()).await.unwrap();
    let spec = client::QueueSpec::durable("q");
    assert_eq!(connection.declare_queue(&spec).await.unwrap_err().code(), Some(406));
    assert_eq!(connection.look_up_queue("q").await.unwrap().message_count, 7);
    connection.close().await.unwrap();
    server.await.unwrap();
}
