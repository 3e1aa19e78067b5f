//! A client that does nothing by itself: it sends what it is told and hands on whatever comes, so that
//! a trace holds exactly what a broker said.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use amqp::{
    BodyCount, Decoder, Encoder, FieldTable, FieldValue, Frame, Method, PROTOCOL_HEADER,
    Properties, TableRef, channel, connection,
};
use bytes::{Buf, BytesMut};

use super::value;

const FRAME_BYTES_MAX: u32 = 131_072;
const RECEIVE_BYTES: usize = 65_536;
/// How long a broker may take for a handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(20);

/// What a broker says, taken out of its frames.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Told {
    /// The answer to a question, in the words of the trace.
    Reply {
        channel: u16,
        text: String,
    },
    /// How many messages and consumers a queue has.
    Counted {
        channel: u16,
        queue: String,
        ready: u32,
        consumers: u32,
    },
    /// The answer to `channel.flow`, which is only asked to see that all before it was said.
    Flow {
        channel: u16,
    },
    Delivered {
        channel: u16,
        consumer: String,
        tag: u64,
        message: Message,
    },
    Got {
        channel: u16,
        tag: u64,
        left: u32,
        message: Message,
    },
    Returned {
        channel: u16,
        code: u16,
        text: String,
        message: Message,
    },
    Confirmed {
        channel: u16,
        tag: u64,
        multiple: bool,
        is_ack: bool,
    },
    /// The broker ends a consumer.
    Cancelled {
        channel: u16,
        consumer: String,
    },
    ChannelClosed {
        channel: u16,
        code: u16,
        text: String,
        method: (u16, u16),
    },
    ConnectionClosed {
        code: u16,
        text: String,
        method: (u16, u16),
    },
}

/// A message as it came.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Message {
    pub(super) redelivered: bool,
    pub(super) exchange: String,
    pub(super) routing_key: String,
    /// All properties that it has, in the order of AMQP.
    pub(super) properties: Vec<(&'static str, FieldValue)>,
    pub(super) body: Vec<u8>,
}

/// One connection.
pub(super) struct Wire {
    socket: TcpStream,
    decoder: Decoder,
    input: BytesMut,
    output: BytesMut,
    /// A message whose header or body is still to come.
    open: Option<Open>,
}

struct Open {
    told: Told,
    missing: Option<BodyCount>,
}

impl Wire {
    /// Connects and logs in, with a name and a password.
    pub(super) fn connect(
        address: SocketAddr,
        (user, password): (&str, &str),
    ) -> std::io::Result<Wire> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        let decoder = Decoder::new(FRAME_BYTES_MAX);
        let (input, output) = (BytesMut::new(), BytesMut::new());
        let mut wire = Wire { socket, decoder, input, output, open: None };
        let deadline = Instant::now() + HANDSHAKE_MAX;
        wire.output.extend_from_slice(&PROTOCOL_HEADER);
        wire.expect(deadline, "start")?;
        let capabilities: FieldTable = CAPABILITIES.map(|name| (name, true)).into_iter().collect();
        let properties = FieldTable(vec![("capabilities".into(), FieldValue::Table(capabilities))]);
        let properties = properties.to_bytes();
        let client_properties = TableRef::validate(&properties).map_err(invalid)?;
        let response = format!("\0{user}\0{password}");
        wire.send(
            0,
            &Method::ConnectionStartOk(connection::StartOk {
                client_properties,
                mechanism: "PLAIN",
                response: response.as_bytes(),
                locale: "en_US",
            }),
        );
        wire.expect(deadline, "tune")?;
        wire.send(
            0,
            &Method::ConnectionTuneOk(connection::TuneOk {
                channel_max: 100,
                frame_max: FRAME_BYTES_MAX,
                heartbeat: 0,
            }),
        );
        wire.send(0, &Method::ConnectionOpen(connection::Open { virtual_host: "/" }));
        wire.expect(deadline, "open-ok")?;
        Ok(wire)
    }

    /// Puts a method behind what is to be sent.
    pub(super) fn send(&mut self, channel: u16, method: &Method<'_>) {
        Encoder::new(&mut self.output, FRAME_BYTES_MAX).method(channel, method);
    }

    /// Puts the content of a message behind its method.
    pub(super) fn send_content(&mut self, channel: u16, properties: &Properties<'_>, body: &[u8]) {
        let mut raw = BytesMut::new();
        properties.encode(&mut raw);
        let mut encoder = Encoder::new(&mut self.output, FRAME_BYTES_MAX);
        encoder.header(channel, body.len() as u64, &raw);
        encoder.body(channel, body);
    }

    /// Sends all that was put together, and waits for the next thing that the broker says. None if
    /// nothing comes before `deadline`.
    pub(super) fn next(&mut self, deadline: Instant) -> std::io::Result<Option<Told>> {
        self.flush()?;
        loop {
            if let Some(told) = self.decode()? {
                return Ok(Some(told));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.socket.set_read_timeout(Some(left))?;
            let mut chunk = [0; RECEIVE_BYTES];
            match self.socket.read(&mut chunk) {
                Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.input.extend_from_slice(&chunk[..count]),
                Err(error) if is_timeout(&error) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends all that was put together.
    pub(super) fn flush(&mut self) -> std::io::Result<()> {
        let outcome = self.socket.write_all(&self.output);
        self.output.clear();
        // A broker that closed says why in what is still to be read.
        match outcome {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error),
            _ => Ok(()),
        }
    }

    fn expect(&mut self, deadline: Instant, what: &str) -> std::io::Result<()> {
        match self.next(deadline)? {
            Some(Told::Reply { text, .. }) if text == what => Ok(()),
            other => Err(std::io::Error::other(format!("{what} was expected: {other:?}"))),
        }
    }

    /// The next whole thing in the bytes that are here.
    fn decode(&mut self) -> std::io::Result<Option<Told>> {
        loop {
            let Some((frame, taken)) = self.decoder.decode(&self.input).map_err(invalid)? else {
                return Ok(None);
            };
            let mut told = None;
            match frame {
                Frame::Method { channel, payload } => {
                    let method = Method::decode(payload).map_err(invalid)?;
                    match translate(channel, &method)? {
                        it
                        @ (Told::Delivered { .. } | Told::Got { .. } | Told::Returned { .. }) => {
                            self.open = Some(Open { told: it, missing: None });
                        }
                        it => told = Some(it),
                    }
                }
                Frame::Header { body_bytes, properties, .. } => {
                    let open = self.open.as_mut().ok_or_else(|| invalid("a header alone"))?;
                    let properties = Properties::decode(properties).map_err(invalid)?;
                    open.message().properties = list(&properties);
                    open.missing = Some(BodyCount::new(body_bytes));
                }
                Frame::Body { payload, .. } => {
                    let open = self.open.as_mut().ok_or_else(|| invalid("a body alone"))?;
                    open.message().body.extend_from_slice(payload);
                    let missing = open.missing.as_mut().ok_or_else(|| invalid("no header"))?;
                    missing.accept(payload.len()).map_err(invalid)?;
                }
                Frame::Heartbeat { .. } => {}
            }
            self.input.advance(taken);
            let is_whole = |open: &mut Open| open.missing.is_some_and(|m| m.is_complete());
            if let Some(open) = self.open.take_if(is_whole) {
                told = Some(open.told);
            }
            if told.is_some() {
                return Ok(told);
            }
        }
    }
}

/// What the client says it can do: all that changes what a broker sends.
const CAPABILITIES: [&str; 5] = [
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    "consumer_cancel_notify",
    "authentication_failure_close",
];

impl Open {
    fn message(&mut self) -> &mut Message {
        match &mut self.told {
            Told::Delivered { message, .. }
            | Told::Got { message, .. }
            | Told::Returned { message, .. } => message,
            Told::Reply { .. }
            | Told::Counted { .. }
            | Told::Flow { .. }
            | Told::Confirmed { .. }
            | Told::Cancelled { .. }
            | Told::ChannelClosed { .. }
            | Told::ConnectionClosed { .. } => unreachable!("only messages have content"),
        }
    }
}

fn translate(channel: u16, method: &Method<'_>) -> std::io::Result<Told> {
    let reply = |text: &str| Ok(Told::Reply { channel, text: text.to_owned() });
    match method {
        Method::ConnectionStart(_) => reply("start"),
        Method::ConnectionTune(_) => reply("tune"),
        Method::ConnectionOpenOk(_) => reply("open-ok"),
        Method::ConnectionCloseOk(_) => reply("close-ok"),
        Method::ChannelOpenOk(_) => reply("open-ok"),
        Method::ChannelCloseOk(_) => reply("close-ok"),
        Method::ExchangeDeclareOk(_) => reply("declare-ok"),
        Method::ExchangeDeleteOk(_) => reply("delete-ok"),
        Method::ExchangeBindOk(_) | Method::QueueBindOk(_) => reply("bind-ok"),
        Method::ExchangeUnbindOk(_) | Method::QueueUnbindOk(_) => reply("unbind-ok"),
        Method::QueuePurgeOk(ok) => reply(&format!("purge-ok {}", ok.message_count)),
        Method::QueueDeleteOk(ok) => reply(&format!("delete-ok {}", ok.message_count)),
        Method::BasicQosOk(_) => reply("qos-ok"),
        Method::BasicConsumeOk(ok) => reply(&format!("consume-ok {}", ok.consumer_tag)),
        Method::BasicCancelOk(ok) => reply(&format!("cancel-ok {}", ok.consumer_tag)),
        Method::BasicGetEmpty(_) => reply("get-empty"),
        Method::BasicRecoverOk(_) => reply("recover-ok"),
        Method::ConfirmSelectOk(_) => reply("select-ok"),
        Method::TxSelectOk(_) => reply("select-ok"),
        Method::TxCommitOk(_) => reply("commit-ok"),
        Method::TxRollbackOk(_) => reply("rollback-ok"),
        Method::ChannelFlowOk(_) => Ok(Told::Flow { channel }),
        Method::QueueDeclareOk(ok) => Ok(Told::Counted {
            channel,
            queue: ok.queue.to_owned(),
            ready: ok.message_count,
            consumers: ok.consumer_count,
        }),
        Method::BasicDeliver(deliver) => Ok(Told::Delivered {
            channel,
            consumer: deliver.consumer_tag.to_owned(),
            tag: deliver.delivery_tag,
            message: message(deliver.redelivered, deliver.exchange, deliver.routing_key),
        }),
        Method::BasicGetOk(got) => Ok(Told::Got {
            channel,
            tag: got.delivery_tag,
            left: got.message_count,
            message: message(got.redelivered, got.exchange, got.routing_key),
        }),
        Method::BasicReturn(returned) => Ok(Told::Returned {
            channel,
            code: returned.reply_code,
            text: returned.reply_text.to_owned(),
            message: message(false, returned.exchange, returned.routing_key),
        }),
        Method::BasicAck(ack) => Ok(Told::Confirmed {
            channel,
            tag: ack.delivery_tag,
            multiple: ack.multiple,
            is_ack: true,
        }),
        Method::BasicNack(nack) => Ok(Told::Confirmed {
            channel,
            tag: nack.delivery_tag,
            multiple: nack.multiple,
            is_ack: false,
        }),
        Method::BasicCancel(cancel) => {
            Ok(Told::Cancelled { channel, consumer: cancel.consumer_tag.to_owned() })
        }
        Method::ChannelClose(channel::Close { reply_code, reply_text, class_id, method_id }) => {
            Ok(Told::ChannelClosed {
                channel,
                code: *reply_code,
                text: (*reply_text).to_owned(),
                method: (*class_id, *method_id),
            })
        }
        Method::ConnectionClose(close) => Ok(Told::ConnectionClosed {
            code: close.reply_code,
            text: close.reply_text.to_owned(),
            method: (close.class_id, close.method_id),
        }),
        other => Err(invalid(format!("no client expects {other:?}"))),
    }
}

fn message(redelivered: bool, exchange: &str, routing_key: &str) -> Message {
    Message {
        redelivered,
        exchange: exchange.to_owned(),
        routing_key: routing_key.to_owned(),
        ..Message::default()
    }
}

fn list(properties: &Properties<'_>) -> Vec<(&'static str, FieldValue)> {
    let text = |text: Option<&str>| text.map(FieldValue::from);
    let octet = |octet: Option<u8>| octet.map(|octet| FieldValue::I32(octet.into()));
    let all = [
        ("content-type", text(properties.content_type)),
        ("content-encoding", text(properties.content_encoding)),
        ("headers", properties.headers.map(|table| FieldValue::Table(table.to_table()))),
        ("delivery-mode", octet(properties.delivery_mode)),
        ("priority", octet(properties.priority)),
        ("correlation-id", text(properties.correlation_id)),
        ("reply-to", text(properties.reply_to)),
        ("expiration", text(properties.expiration)),
        ("message-id", text(properties.message_id)),
        ("timestamp", properties.timestamp.map(FieldValue::Timestamp)),
        ("type", text(properties.kind)),
        ("user-id", text(properties.user_id)),
        ("app-id", text(properties.app_id)),
        ("cluster-id", text(properties.cluster_id)),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// A message in the words of a trace.
pub(super) fn show(message: &Message) -> String {
    let body = String::from_utf8_lossy(&message.body);
    let name = body.trim_end_matches('.');
    let mut text = name.to_owned();
    if name.len() < body.len() {
        text.push_str(&format!("({} bytes)", body.len()));
    }
    if message.redelivered {
        text.push_str(" redelivered");
    }
    text.push_str(&format!(" exchange='{}' key='{}'", message.exchange, message.routing_key));
    for (name, value) in &message.properties {
        text.push_str(&format!(" {name}={}", value::show(value)));
    }
    text
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
}

fn invalid(error: impl ToString) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, error.to_string())
}
