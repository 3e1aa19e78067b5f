//! A small scripted AMQP server, on any stream.
#![allow(dead_code, reason = "no test program uses all of it")]

use amqp::{Decoder, Encoder, Frame, Method, TableRef, basic, channel, confirm, connection};
use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;

pub(crate) const FRAME_MAX: u32 = 4096;

/// The server's end of one connection.
pub(crate) struct Peer {
    socket: Box<dyn Stream>,
    received: BytesMut,
    output: BytesMut,
}

/// A socket, plain or under TLS.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// What a client sent, owned.
#[derive(Debug, PartialEq)]
pub(crate) enum Sent {
    Method(&'static str),
    /// A whole publish: its body.
    Publish(String),
    Ack(u64, bool),
    Nothing,
}

impl Peer {
    /// Accepts a connection and does the handshake, channel 1 included.
    pub(crate) async fn accept(listener: &TcpListener) -> Self {
        let (socket, _) = listener.accept().await.unwrap();
        Self::welcome(Box::new(socket)).await
    }

    /// The handshake on a socket that was just opened, channel 1 included.
    pub(crate) async fn welcome(socket: Box<dyn Stream>) -> Self {
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

    pub(crate) fn say(&mut self, method: &Method<'_>) {
        self.say_on(u16::from(method.ids().0 != 10), method);
    }

    pub(crate) fn say_on(&mut self, channel: u16, method: &Method<'_>) {
        Encoder::new(&mut self.output, FRAME_MAX).method(channel, method);
    }

    pub(crate) fn deliver(&mut self, tag: u64, redelivered: bool, body: &str) {
        let (tag_name, address, none) = (b"\x01c", b"\x00\x01q", [0, 0]);
        let body = body.as_bytes();
        let out = &mut self.output;
        amqp::encode_deliver(out, FRAME_MAX, 1, tag_name, tag, redelivered, address, &none, body);
    }

    pub(crate) async fn expect(&mut self, name: &'static str) {
        assert_eq!(self.next().await, Sent::Method(name));
    }

    /// The next method, publish or ack; sends what waits before it waits itself.
    pub(crate) async fn next(&mut self) -> Sent {
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
        self.flush().await;
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

    /// Sends what waits.
    pub(crate) async fn flush(&mut self) {
        self.socket.write_all_buf(&mut self.output).await.unwrap();
        self.socket.flush().await.unwrap();
    }

    /// Answers the client's close.
    pub(crate) async fn goodbye(mut self) {
        self.expect("connection.close").await;
        self.say(&Method::ConnectionCloseOk(connection::CloseOk));
        self.flush().await;
    }

    pub(crate) async fn select_confirms(&mut self) {
        self.expect("confirm.select").await;
        self.say(&Method::ConfirmSelectOk(confirm::SelectOk));
    }

    pub(crate) fn ack(&mut self, delivery_tag: u64, multiple: bool) {
        self.say(&Method::BasicAck(basic::Ack { delivery_tag, multiple }));
    }

    pub(crate) async fn start_consumer(&mut self) {
        self.expect("basic.qos").await;
        self.say(&Method::BasicQosOk(basic::QosOk));
        self.expect("basic.consume").await;
        self.say(&Method::BasicConsumeOk(basic::ConsumeOk { consumer_tag: "c" }));
    }
}
