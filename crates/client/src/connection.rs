//! One connection, without its socket: handshake, channels, heartbeats, closing.
//!
//! A core: the shell reads into [`Core::buffer`], calls [`Core::step`] with the time, writes what is in
//! [`Core::output`] and comes back at [`Core::deadline`]. It keeps no requests: which answer belongs to
//! which question is the channel owner's knowledge, because AMQP answers a channel in order.
//!
//! ```text
//!  Starting ──start──> Tuning ──tune──> Opening ──open-ok──> Open ──close()──> Closing ──close-ok──> Closed
//!       └────────────────┴─── connection.close at any time: close-ok is written, the step is an error
//! ```

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use amqp::{Decoder, Encoder, FieldTable, FieldValue, Frame, Method, PROTOCOL_HEADER, TableRef};
use amqp::{channel, connection, limits as amqp_limits};
use bytes::{Bytes, BytesMut};

use crate::channel::{Channel, Content, Heard};
use crate::error::Error;
use crate::limits::{FRAME_BYTES_MIN, RECEIVE_BYTES};
use crate::options::Options;
use crate::url::Url;

/// What the core is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Bytes were added to [`Core::buffer`].
    Received,
    /// Everything in [`Core::output`] went to the socket.
    Written,
    DeadlinePassed,
    /// A deadline passed while the shell took nothing from the socket, on purpose: the server's silence says nothing.
    DeadlineUnread,
}

/// What the server has said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The handshake is done: channels can be opened.
    Opened,
    /// A method without content, most often the answer to a request; decode with `Method::decode`.
    Method {
        channel: u16,
        payload: Bytes,
    },
    /// `basic.ack` (positive) or `basic.nack` for published messages.
    Confirmed {
        channel: u16,
        tag: u64,
        multiple: bool,
        positive: bool,
    },
    /// `basic.deliver`, `basic.get-ok` or `basic.return`.
    Content {
        channel: u16,
        content: Content,
    },
    /// `channel.close`; it has been answered.
    ChannelClosed {
        channel: u16,
        code: u16,
        text: String,
    },
    /// The server takes no more publishes on this connection until `Unblocked`.
    Blocked {
        reason: String,
    },
    Unblocked,
    /// Our close was answered.
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Starting,
    Tuning,
    Opening,
    Open,
    Closing,
    Closed,
}

/// What both sides agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    pub channel_max: u16,
    /// Largest frame in bytes, overhead included.
    pub frame_max: u32,
    /// Seconds; 0 is off.
    pub heartbeat: u16,
}

/// The conversation of one connection.
#[derive(Debug)]
pub struct Core {
    phase: Phase,
    url: Url,
    options: Options,
    agreed: Agreed,
    decoder: Decoder,
    received: BytesMut,
    output: BytesMut,
    channels: BTreeMap<u16, Channel>,
    server: FieldTable,
    last_received: Instant,
    last_written: Instant,
    /// When the handshake or the close must be done.
    done_by: Option<Instant>,
}

impl Core {
    /// A connection whose socket was just opened.
    pub fn new(url: &Url, options: &Options, now: Instant) -> Self {
        let options = options.with(url);
        let agreed = Agreed {
            channel_max: options.channel_max,
            frame_max: options.frame_max,
            heartbeat: options.heartbeat,
        };
        Self {
            phase: Phase::Starting,
            url: url.clone(),
            done_by: Some(now + options.answer_wait),
            options,
            agreed,
            decoder: Decoder::new(amqp_limits::FRAME_BYTES_BEFORE_TUNE),
            received: BytesMut::new(),
            output: BytesMut::from(PROTOCOL_HEADER.as_slice()),
            channels: BTreeMap::new(),
            server: FieldTable::new(),
            last_received: now,
            last_written: now,
        }
    }

    /// Where the shell puts what it reads; has room for a large read.
    pub fn buffer(&mut self) -> &mut BytesMut {
        self.received.reserve(RECEIVE_BYTES);
        &mut self.received
    }

    /// Bytes for the socket: the shell takes them from the front.
    pub fn output(&mut self) -> &mut BytesMut {
        &mut self.output
    }

    /// Whether bytes wait for the socket.
    pub fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    pub fn agreed(&self) -> Agreed {
        self.agreed
    }

    /// What the server says of itself; empty before its first word.
    pub fn server_properties(&self) -> &FieldTable {
        &self.server
    }

    /// Takes a step. After an error the connection is over, but what is in the output (an answer to the
    /// server's close) should still be written.
    ///
    /// # Errors
    /// The server closed the connection, broke the protocol, or is not heard of any more.
    pub fn step(
        &mut self,
        now: Instant,
        input: Input,
        events: &mut Vec<Event>,
    ) -> Result<(), Error> {
        match input {
            Input::Received => {
                self.last_received = now;
                self.receive(events)
            }
            Input::Written => {
                self.last_written = now;
                Ok(())
            }
            Input::DeadlinePassed => self.time_passed(now),
            Input::DeadlineUnread => {
                self.last_received = now;
                self.time_passed(now)
            }
        }
    }

    /// When [`Input::DeadlinePassed`] is due, if ever.
    pub fn deadline(&self) -> Option<Instant> {
        let heartbeats = self.heartbeat().map(|beat| {
            // Half of the interval, so that one late timer is not a missed heartbeat (AMQP 0-9-1 4.2.7).
            (self.last_written + beat / 2).min(self.last_received + 2 * beat)
        });
        heartbeats.into_iter().chain(self.done_by).min()
    }

    /// The lowest channel that is not in use, if the server allows another.
    pub fn free_channel(&self) -> Option<u16> {
        let in_use = self.channels.keys().copied().zip(1..).take_while(|(used, next)| used == next);
        u16::try_from(in_use.count() + 1).ok().filter(|free| *free <= self.agreed.channel_max)
    }

    /// Opens channel `number`, which must be free; `channel.open-ok` comes as an event.
    pub fn open_channel(&mut self, number: u16) {
        let before = self.channels.insert(number, Channel::new());
        assert!(before.is_none(), "a channel that is in use was opened again");
        self.send(number, &Method::ChannelOpen(channel::Open));
    }

    /// Sends a method that has no content.
    pub fn send(&mut self, channel: u16, method: &Method<'_>) {
        Encoder::new(&mut self.output, self.agreed.frame_max).method(channel, method);
    }

    /// Begins the end: [`Event::Closed`] follows, before `done_by`.
    pub fn close(&mut self, done_by: Instant) {
        let close =
            connection::Close { reply_code: 200, reply_text: "bye", class_id: 0, method_id: 0 };
        self.send(0, &Method::ConnectionClose(close));
        self.phase = Phase::Closing;
        self.done_by = Some(done_by);
    }

    /// Closes one channel; everything on it but `channel.close-ok` is dropped from here on.
    pub fn close_channel(&mut self, number: u16) {
        let Some(channel) = self.channels.get_mut(&number) else { return };
        channel.close();
        let close =
            channel::Close { reply_code: 200, reply_text: "bye", class_id: 0, method_id: 0 };
        self.send(number, &Method::ChannelClose(close));
    }

    fn heartbeat(&self) -> Option<Duration> {
        let agreed = matches!(self.phase, Phase::Opening | Phase::Open | Phase::Closing);
        (agreed && self.agreed.heartbeat > 0)
            .then(|| Duration::from_secs(u64::from(self.agreed.heartbeat)))
    }

    fn time_passed(&mut self, now: Instant) -> Result<(), Error> {
        if self.done_by.is_some_and(|done_by| now >= done_by) {
            let to = match self.phase {
                Phase::Starting => "the protocol header",
                Phase::Tuning => "the login",
                Phase::Opening => "connection.open",
                Phase::Open | Phase::Closing | Phase::Closed => "connection.close",
            };
            return Err(Error::NoAnswer { to: to.into() });
        }
        let Some(beat) = self.heartbeat() else { return Ok(()) };
        if now >= self.last_received + 2 * beat {
            let why = format!("nothing came for two heartbeats ({} s)", 2 * beat.as_secs());
            return Err(Error::Lost { why });
        }
        if now >= self.last_written + beat / 2 {
            if self.output.is_empty() {
                Encoder::new(&mut self.output, self.agreed.frame_max).heartbeat();
            }
            // Not again before the next half interval, even if the socket does not take it.
            self.last_written = now;
        }
        Ok(())
    }

    fn receive(&mut self, events: &mut Vec<Event>) -> Result<(), Error> {
        if self.phase == Phase::Starting && self.received.starts_with(b"AMQP") {
            return Err(Error::protocol("the server speaks another version of AMQP than 0-9-1"));
        }
        // An alert or the answer to a hello: a TLS record (RFC 8446 5.1).
        if self.phase == Phase::Starting && matches!(*self.received, [0x15 | 0x16, 3, ..]) {
            return Err(Error::Tls {
                why: "the server speaks TLS on this port: say amqps://".into(),
            });
        }
        loop {
            // Whole frames are cut off once, so that contents can be views of them.
            let bytes = self.whole_frames()?;
            if bytes == 0 {
                return Ok(());
            }
            let received = self.received.split_to(bytes).freeze();
            let mut rest = received.as_ref();
            while let Some((frame, taken)) = self.decoder.decode(rest)? {
                self.frame(frame, &received, events)?;
                rest = &rest[taken..];
            }
        }
    }

    /// How many bytes the whole frames at the front take. Stops after one frame during the handshake:
    /// `connection.tune` changes how large the next may be.
    fn whole_frames(&self) -> Result<usize, Error> {
        let mut bytes = 0;
        while let Some((_, taken)) = self.decoder.decode(&self.received[bytes..])? {
            bytes += taken;
            if self.phase != Phase::Open {
                break;
            }
        }
        Ok(bytes)
    }

    fn frame(
        &mut self,
        frame: Frame<'_>,
        received: &Bytes,
        events: &mut Vec<Event>,
    ) -> Result<(), Error> {
        let number = frame.channel();
        if let Frame::Heartbeat { .. } = frame {
            return Ok(());
        }
        if number == 0 {
            let Frame::Method { payload, .. } = frame else {
                return Err(Error::protocol("content on channel 0"));
            };
            return self.connection_method(Method::decode(payload)?, events);
        }
        if self.phase == Phase::Closing {
            return Ok(());
        }
        let Some(channel) = self.channels.get_mut(&number) else {
            return Err(Error::protocol(format!("a frame on channel {number}, which is not open")));
        };
        match channel.accept(frame, received)? {
            None => Ok(()),
            Some(Heard::Content(content)) => {
                events.push(Event::Content { channel: number, content });
                Ok(())
            }
            Some(Heard::Method(payload)) => self.channel_method(number, payload, events),
        }
    }

    fn channel_method(
        &mut self,
        number: u16,
        payload: Bytes,
        events: &mut Vec<Event>,
    ) -> Result<(), Error> {
        let channel = self.channels.get_mut(&number).expect("the frame's channel was looked up");
        if channel.is_closing() {
            match Method::decode(&payload)? {
                // Closes crossed: answered, and our own answer is still to come.
                Method::ChannelClose(_) => {
                    self.send(number, &Method::ChannelCloseOk(channel::CloseOk));
                }
                Method::ChannelCloseOk(_) => {
                    self.channels.remove(&number);
                    events.push(Event::Method { channel: number, payload });
                }
                _ => (),
            }
            return Ok(());
        }
        match Method::decode(&payload)? {
            Method::BasicAck(ack) => events.push(Event::Confirmed {
                channel: number,
                tag: ack.delivery_tag,
                multiple: ack.multiple,
                positive: true,
            }),
            Method::BasicNack(nack) => events.push(Event::Confirmed {
                channel: number,
                tag: nack.delivery_tag,
                multiple: nack.multiple,
                positive: false,
            }),
            Method::ChannelClose(close) => {
                let (code, text) = (close.reply_code, close.reply_text.to_owned());
                self.channels.remove(&number);
                self.send(number, &Method::ChannelCloseOk(channel::CloseOk));
                events.push(Event::ChannelClosed { channel: number, code, text });
            }
            Method::ChannelFlow(flow) => {
                let active = flow.active;
                self.send(number, &Method::ChannelFlowOk(channel::FlowOk { active }));
                events.push(if active {
                    Event::Unblocked
                } else {
                    Event::Blocked { reason: "channel.flow".into() }
                });
            }
            Method::ChannelOpenOk(_) => {
                channel.opened()?;
                events.push(Event::Method { channel: number, payload });
            }
            _ => events.push(Event::Method { channel: number, payload }),
        }
        Ok(())
    }

    fn connection_method(
        &mut self,
        method: Method<'_>,
        events: &mut Vec<Event>,
    ) -> Result<(), Error> {
        match (self.phase, method) {
            (_, Method::ConnectionClose(close)) => {
                self.send(0, &Method::ConnectionCloseOk(connection::CloseOk));
                self.phase = Phase::Closed;
                let (code, text) = (close.reply_code, close.reply_text.to_owned());
                return Err(Error::ConnectionClosed { code, text });
            }
            (Phase::Starting, Method::ConnectionStart(start)) => self.log_in(&start)?,
            (Phase::Tuning, Method::ConnectionTune(tune)) => self.tune(&tune)?,
            (Phase::Opening, Method::ConnectionOpenOk(_)) => {
                (self.phase, self.done_by) = (Phase::Open, None);
                events.push(Event::Opened);
            }
            (Phase::Open, Method::ConnectionBlocked(blocked)) => {
                events.push(Event::Blocked { reason: blocked.reason.to_owned() });
            }
            (Phase::Open, Method::ConnectionUnblocked(_)) => events.push(Event::Unblocked),
            (Phase::Closing, Method::ConnectionCloseOk(_)) => {
                (self.phase, self.done_by) = (Phase::Closed, None);
                events.push(Event::Closed);
            }
            (Phase::Closing, _) => (),
            (_, method) => {
                return Err(Error::protocol(format!("{} at the wrong time", method.name())));
            }
        }
        Ok(())
    }

    fn log_in(&mut self, start: &connection::Start<'_>) -> Result<(), Error> {
        let is_external = self.url.tls.as_ref().is_some_and(|tls| tls.is_login);
        let (mechanism, response) = match is_external {
            true => ("EXTERNAL", String::new()),
            false => ("PLAIN", format!("\0{}\0{}", self.url.user, self.url.password)),
        };
        let mut offered = start.mechanisms.split(|byte| *byte == b' ');
        if !offered.any(|name| name == mechanism.as_bytes()) {
            let offered = String::from_utf8_lossy(start.mechanisms).into_owned();
            let text =
                format!("the server offers the logins {offered}; this client wants {mechanism}");
            return Err(Error::invalid(text));
        }
        let properties = self.client_properties().to_bytes();
        let start_ok = connection::StartOk {
            client_properties: TableRef::validate(&properties)?,
            mechanism,
            response: response.as_bytes(),
            locale: "en_US",
        };
        self.send(0, &Method::ConnectionStartOk(start_ok));
        self.server = start.server_properties.to_table();
        self.phase = Phase::Tuning;
        Ok(())
    }

    fn client_properties(&self) -> FieldTable {
        let mut capabilities = FieldTable::new();
        for name in [
            "publisher_confirms",
            "exchange_exchange_bindings",
            "basic.nack",
            "consumer_cancel_notify",
            "connection.blocked",
            "authentication_failure_close",
        ] {
            capabilities.insert(name, FieldValue::Bool(true));
        }
        let text = |text: &str| FieldValue::LongStr(text.as_bytes().to_vec());
        let mut properties = FieldTable::new();
        properties
            .insert("product", text("Millrace client"))
            .insert("version", text(env!("CARGO_PKG_VERSION")))
            .insert("platform", text("Rust"))
            .insert("capabilities", FieldValue::Table(capabilities));
        if let Some(name) = &self.options.name {
            properties.insert("connection_name", text(name));
        }
        properties
    }

    fn tune(&mut self, tune: &connection::Tune) -> Result<(), Error> {
        let lower = |ours: u32, theirs: u32| if theirs == 0 { ours } else { ours.min(theirs) };
        if (1..FRAME_BYTES_MIN).contains(&tune.frame_max) {
            let text = format!("the server wants frames of at most {} bytes", tune.frame_max);
            return Err(Error::protocol(text));
        }
        // 0 from us is "off" and stands; 0 from the server means that it does not mind.
        let heartbeat = lower(self.options.heartbeat.into(), tune.heartbeat.into());
        let channel_max = lower(self.options.channel_max.into(), tune.channel_max.into());
        self.agreed = Agreed {
            channel_max: channel_max as u16,
            frame_max: lower(self.options.frame_max, tune.frame_max),
            heartbeat: heartbeat as u16,
        };
        let Agreed { channel_max, frame_max, heartbeat } = self.agreed;
        let tune_ok = connection::TuneOk { channel_max, frame_max, heartbeat };
        self.send(0, &Method::ConnectionTuneOk(tune_ok));
        self.decoder.set_frame_max(frame_max);
        let virtual_host = self.url.vhost.clone();
        let open = connection::Open { virtual_host: &virtual_host };
        self.send(0, &Method::ConnectionOpen(open));
        self.phase = Phase::Opening;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
