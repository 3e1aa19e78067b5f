//! The core against a scripted server in memory.

use super::*;
use amqp::{basic, queue};

struct Peer {
    core: Core,
    now: Instant,
    events: Vec<Event>,
    /// What the client has sent, decoded, since the last look.
    sent: Vec<String>,
}

impl Peer {
    fn new(options: &Options) -> Self {
        #[expect(clippy::disallowed_methods, reason = "a test needs one instant to start from")]
        let now = Instant::now();
        let url: Url = "amqp://ann:secret@h/v".parse().expect("a good URL");
        let core = Core::new(&url, options, now);
        let mut peer = Self { core, now, events: Vec::new(), sent: Vec::new() };
        assert_eq!(peer.take_output(), PROTOCOL_HEADER);
        peer
    }

    /// A connection after its handshake, with channel 1 open.
    fn open() -> Self {
        let mut peer = Self::new(&Options::default());
        peer.start();
        peer.tune(2047, 131_072, 60);
        peer.says(0, &Method::ConnectionOpenOk(connection::OpenOk)).expect("in order");
        peer.core.open_channel(1);
        peer.says(1, &Method::ChannelOpenOk(channel::OpenOk)).expect("in order");
        peer.events.clear();
        peer.look();
        peer.sent.clear();
        peer
    }

    fn start(&mut self) {
        let start = connection::Start {
            version_major: 0,
            version_minor: 9,
            server_properties: TableRef::default(),
            mechanisms: b"AMQPLAIN PLAIN",
            locales: b"en_US",
        };
        self.says(0, &Method::ConnectionStart(start)).expect("in order");
    }

    fn tune(&mut self, channel_max: u16, frame_max: u32, heartbeat: u16) {
        let tune = connection::Tune { channel_max, frame_max, heartbeat };
        self.says(0, &Method::ConnectionTune(tune)).expect("in order");
    }

    fn take_output(&mut self) -> Vec<u8> {
        let bytes = self.core.output().split().to_vec();
        if !bytes.is_empty() {
            let now = self.now;
            self.core.step(now, Input::Written, &mut self.events).expect("writing never fails");
        }
        bytes
    }

    /// Decodes what the client wants to send.
    fn look(&mut self) -> &[String] {
        let bytes = self.take_output();
        let decoder = Decoder::new(amqp_limits::FRAME_BYTES_MAX);
        let mut rest = bytes.as_slice();
        while let Some((frame, taken)) = decoder.decode(rest).expect("the client sends AMQP") {
            self.sent.push(match frame {
                Frame::Method { channel, payload } => {
                    let method = Method::decode(payload).expect("the client sends AMQP");
                    format!("{channel} {}", method.name())
                }
                Frame::Heartbeat { .. } => "heartbeat".into(),
                other => format!("{other:?}"),
            });
            rest = &rest[taken..];
        }
        &self.sent
    }

    fn says(&mut self, channel: u16, method: &Method<'_>) -> Result<(), Error> {
        let mut bytes = BytesMut::new();
        Encoder::new(&mut bytes, 131_072).method(channel, method);
        self.hears(&bytes)
    }

    fn hears(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.core.buffer().extend_from_slice(bytes);
        self.core.step(self.now, Input::Received, &mut self.events)
    }

    fn passes(&mut self, seconds: u64) -> Result<(), Error> {
        self.now += Duration::from_secs(seconds);
        self.core.step(self.now, Input::DeadlinePassed, &mut self.events)
    }
}

fn deliver(tag: u64, body: &[u8], frame_max: u32) -> BytesMut {
    let mut out = BytesMut::new();
    amqp::encode_deliver(&mut out, frame_max, 1, b"\x01c", tag, false, b"\x00\x01q", &[0, 0], body);
    out
}

#[test]
fn the_handshake_logs_in_agrees_on_the_lower_limits_and_opens_the_virtual_host() {
    let mut peer = Peer::new(&Options { heartbeat: 30, ..Options::default() });
    peer.start();
    assert_eq!(peer.look(), ["0 connection.start-ok"]);
    peer.tune(100, 8192, 60);
    assert_eq!(peer.look()[1..], ["0 connection.tune-ok", "0 connection.open"]);
    let agreed = Agreed { channel_max: 100, frame_max: 8192, heartbeat: 30 };
    assert_eq!(peer.core.agreed(), agreed);
    peer.says(0, &Method::ConnectionOpenOk(connection::OpenOk)).expect("in order");
    assert_eq!(peer.events, [Event::Opened]);
}

#[test]
fn a_server_without_limits_gets_ours() {
    let mut peer = Peer::new(&Options { heartbeat: 0, ..Options::default() });
    peer.start();
    peer.tune(0, 0, 0);
    let agreed = Agreed { channel_max: 2047, frame_max: 131_072, heartbeat: 0 };
    assert_eq!(peer.core.agreed(), agreed);
}

#[test]
fn a_refused_login_gives_the_servers_code_and_words_and_is_answered() {
    let mut peer = Peer::new(&Options::default());
    peer.start();
    peer.look();
    let text = "ACCESS_REFUSED - Login was refused";
    let close = connection::Close { reply_code: 403, reply_text: text, class_id: 0, method_id: 0 };
    let error = peer.says(0, &Method::ConnectionClose(close)).expect_err("a refusal");
    assert_eq!(error, Error::ConnectionClosed { code: 403, text: text.into() });
    assert_eq!(peer.look().last().map(String::as_str), Some("0 connection.close-ok"));
}

#[test]
fn a_server_of_another_version_is_named_as_such() {
    let mut peer = Peer::new(&Options::default());
    let error = peer.hears(b"AMQP\x00\x01\x00\x00").expect_err("not our version");
    assert!(error.to_string().contains("another version"), "{error}");
}

#[test]
fn a_handshake_that_stalls_is_given_up_in_time() {
    let mut peer = Peer::new(&Options::default());
    peer.start();
    assert_eq!(peer.passes(9), Ok(()));
    assert_eq!(peer.passes(1), Err(Error::NoAnswer { to: "the login".into() }));
}

#[test]
fn a_heartbeat_goes_out_after_half_the_interval_without_a_write() {
    let mut peer = Peer::open();
    peer.passes(29).expect("alive");
    assert_eq!(peer.look(), [] as [&str; 0]);
    peer.passes(1).expect("alive");
    assert_eq!(peer.look(), ["heartbeat"]);
}

#[test]
fn a_server_that_is_silent_for_two_intervals_is_lost() {
    let mut peer = Peer::open();
    let deadline = peer.core.deadline().expect("heartbeats are on");
    assert_eq!(deadline, peer.now + Duration::from_secs(30));
    peer.passes(119).expect("alive");
    assert!(matches!(peer.passes(1), Err(Error::Lost { .. })));
}

#[test]
fn a_server_that_is_not_read_on_purpose_is_not_lost_and_gets_heartbeats() {
    let mut peer = Peer::open();
    for _ in 0..5 {
        peer.now += Duration::from_secs(40);
        let unread = peer.core.step(peer.now, Input::DeadlineUnread, &mut peer.events);
        unread.expect("nobody looked whether the server has said something");
        assert_eq!(peer.look(), ["heartbeat"]);
        peer.sent.clear();
    }
    assert!(peer.passes(120).is_err(), "read again, it is silent for two intervals");
}

#[test]
fn any_traffic_counts_as_a_sign_of_life() {
    let mut peer = Peer::open();
    peer.passes(110).expect("alive");
    peer.says(0, &Method::ConnectionUnblocked(connection::Unblocked)).expect("in order");
    peer.passes(119).expect("alive");
}

#[test]
fn a_delivery_is_put_together_from_however_many_pieces_it_comes_in() {
    let body: Vec<u8> = (0..10_000u32).map(|number| number as u8).collect();
    let wire = deliver(1, &body, 4096);
    for piece in [1, 7, 1000, wire.len()] {
        let mut peer = Peer::open();
        wire.chunks(piece).for_each(|bytes| peer.hears(bytes).expect("good bytes"));
        let [Event::Content { channel: 1, content }] = peer.events.as_slice() else {
            panic!("{:?}", peer.events);
        };
        assert_eq!(content.body, body);
        assert_eq!(&content.properties[..], [0, 0]);
        assert!(matches!(Method::decode(&content.method), Ok(Method::BasicDeliver(_))));
    }
}

#[test]
fn an_empty_body_needs_no_body_frame() {
    let mut peer = Peer::open();
    peer.hears(&deliver(1, b"", 4096)).expect("good bytes");
    assert_eq!(peer.events.len(), 1);
}

#[test]
fn acks_and_nacks_come_as_confirms() {
    let mut peer = Peer::open();
    let ack = Method::BasicAck(basic::Ack { delivery_tag: 7, multiple: true });
    let nack = Method::BasicNack(basic::Nack { delivery_tag: 8, multiple: false, requeue: false });
    peer.says(1, &ack).expect("in order");
    peer.says(1, &nack).expect("in order");
    let confirmed = |tag, multiple, positive| {
        let channel = 1;
        Event::Confirmed { channel, tag, multiple, positive }
    };
    assert_eq!(peer.events, [confirmed(7, true, true), confirmed(8, false, false)]);
}

#[test]
fn a_refusal_closes_the_channel_and_leaves_the_connection() {
    let mut peer = Peer::open();
    let text = "NOT_FOUND - no queue 'q' in vhost 'v'";
    let close = channel::Close { reply_code: 404, reply_text: text, class_id: 50, method_id: 10 };
    peer.says(1, &Method::ChannelClose(close)).expect("a refusal, not an end");
    let closed = Event::ChannelClosed { channel: 1, code: 404, text: text.into() };
    assert_eq!(peer.events, [closed]);
    assert_eq!(peer.look(), ["1 channel.close-ok"]);
    peer.core.open_channel(1);
    assert_eq!(peer.look()[1..], ["1 channel.open"]);
}

#[test]
fn what_comes_after_our_channel_close_is_dropped_until_it_is_answered() {
    let mut peer = Peer::open();
    peer.core.close_channel(1);
    peer.hears(&deliver(1, b"late", 4096)).expect("allowed");
    peer.says(1, &Method::ChannelClose(channel::Close::default())).expect("closes cross");
    assert_eq!(peer.events, []);
    peer.says(1, &Method::ChannelCloseOk(channel::CloseOk)).expect("in order");
    assert_eq!(peer.events.len(), 1);
    assert_eq!(peer.look(), ["1 channel.close", "1 channel.close-ok"]);
}

#[test]
fn blocking_and_unblocking_are_told() {
    let mut peer = Peer::open();
    let blocked = connection::Blocked { reason: "low on memory" };
    peer.says(0, &Method::ConnectionBlocked(blocked)).expect("in order");
    peer.says(0, &Method::ConnectionUnblocked(connection::Unblocked)).expect("in order");
    assert_eq!(peer.events, [Event::Blocked { reason: "low on memory".into() }, Event::Unblocked]);
}

#[test]
fn frames_out_of_order_are_the_servers_mistake() {
    let header = |peer: &mut Peer| {
        let mut bytes = BytesMut::new();
        Encoder::new(&mut bytes, 4096).header(1, 3, &[0, 0]);
        peer.hears(&bytes)
    };
    let mut peer = Peer::open();
    assert!(matches!(header(&mut peer), Err(Error::Protocol { .. })));

    let mut peer = Peer::open();
    let got = basic::GetOk { routing_key: "q", ..basic::GetOk::default() };
    peer.says(1, &Method::BasicGetOk(got)).expect("content follows");
    let error = peer.says(1, &Method::QueueBindOk(queue::BindOk));
    assert!(matches!(error, Err(Error::Protocol { .. })));

    let mut peer = Peer::open();
    let error = peer.says(9, &Method::QueueBindOk(queue::BindOk));
    assert!(matches!(error, Err(Error::Protocol { .. })));
}

#[test]
fn a_body_that_is_too_large_is_refused_before_it_is_gathered() {
    let mut peer = Peer::open();
    let deliver = basic::Deliver { consumer_tag: "c", ..basic::Deliver::default() };
    peer.says(1, &Method::BasicDeliver(deliver)).expect("content follows");
    let mut bytes = BytesMut::new();
    Encoder::new(&mut bytes, 4096).header(1, u64::MAX, &[0, 0]);
    assert!(matches!(peer.hears(&bytes), Err(Error::Protocol { .. })));
}

#[test]
fn closing_ends_with_the_servers_word_or_in_time_without_it() {
    let mut peer = Peer::open();
    peer.core.close(peer.now + Duration::from_secs(5));
    assert_eq!(peer.look(), ["0 connection.close"]);
    peer.hears(&deliver(1, b"late", 4096)).expect("ignored");
    peer.says(0, &Method::ConnectionCloseOk(connection::CloseOk)).expect("in order");
    assert_eq!(peer.events, [Event::Closed]);

    let mut peer = Peer::open();
    peer.core.close(peer.now + Duration::from_secs(5));
    assert_eq!(peer.passes(5), Err(Error::NoAnswer { to: "connection.close".into() }));
}

#[test]
fn no_bytes_make_the_core_panic() {
    let mut chance = crate::Chance::new(3);
    let good = [deliver(1, b"hello", 4096), deliver(2, b"", 4096)].concat();
    for _ in 0..3000 {
        let mut bytes = good.clone();
        for _ in 0..=chance.next_bits() % 3 {
            let at = chance.next_bits() as usize % bytes.len();
            bytes[at] = chance.next_bits() as u8;
        }
        let _ = Peer::open().hears(&bytes);
    }
}
