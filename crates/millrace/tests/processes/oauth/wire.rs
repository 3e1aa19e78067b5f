//! A client that says exactly what it is told: the other one does not renew its login.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use amqp::{Decoder, Encoder, FieldTable, Frame, Method, TableRef, channel, connection};
use bytes::BytesMut;
use client::Url;

/// Longer than anything here takes.
const TIMEOUT: Duration = Duration::from_secs(60);

pub(super) struct Wire {
    stream: TcpStream,
    received: BytesMut,
    decoder: Decoder,
}

impl Wire {
    /// Logs in with a password, and opens `/` and channel 1. If that is refused: the code.
    pub(super) fn open(url: &Url, password: &str) -> Result<Self, u16> {
        let stream = TcpStream::connect((url.host.as_str(), url.port)).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let decoder = Decoder::new(131_072);
        let mut wire = Self { stream, received: BytesMut::new(), decoder };
        wire.stream.write_all(b"AMQP\0\0\x09\x01").unwrap();
        wire.hears("connection.start").unwrap();
        let capabilities = FieldTable::from_iter([("authentication_failure_close", true)]);
        let mut properties = FieldTable::new();
        properties.insert("capabilities", amqp::FieldValue::Table(capabilities));
        let properties = properties.to_bytes();
        let response = format!("\0\0{password}");
        wire.say(
            0,
            &Method::ConnectionStartOk(connection::StartOk {
                client_properties: TableRef::validate(&properties).unwrap(),
                mechanism: "PLAIN",
                response: response.as_bytes(),
                locale: "en_US",
            }),
        );
        wire.hears("connection.tune")?;
        let tune = connection::TuneOk { channel_max: 9, frame_max: 131_072, heartbeat: 0 };
        wire.say(0, &Method::ConnectionTuneOk(tune));
        wire.say(0, &Method::ConnectionOpen(connection::Open { virtual_host: "/" }));
        wire.hears("connection.open-ok")?;
        wire.say(1, &Method::ChannelOpen(channel::Open));
        wire.hears("channel.open-ok")?;
        Ok(wire)
    }

    pub(super) fn say(&mut self, channel: u16, method: &Method<'_>) {
        let mut bytes = BytesMut::new();
        Encoder::new(&mut bytes, 131_072).method(channel, method);
        self.stream.write_all(&bytes).unwrap();
    }

    /// Renews the login.
    pub(super) fn renew(&mut self, token: &str) -> Result<(), u16> {
        let update = connection::UpdateSecret { new_secret: token.as_bytes(), reason: "test" };
        self.say(0, &Method::ConnectionUpdateSecret(update));
        self.hears("connection.update-secret-ok")
    }

    /// Waits for this method. If the server closes the connection or the channel instead: the code.
    pub(super) fn hears(&mut self, name: &str) -> Result<(), u16> {
        loop {
            if let Some((frame, used)) = self.decoder.decode(&self.received).unwrap() {
                let Frame::Method { payload, .. } = frame else { panic!("{frame:?}") };
                let heard = match Method::decode(payload).unwrap() {
                    Method::ConnectionClose(close) => Err(close.reply_code),
                    Method::ChannelClose(close) => Err(close.reply_code),
                    other => {
                        assert_eq!(other.name(), name);
                        Ok(())
                    }
                };
                let _ = self.received.split_to(used);
                return heard;
            }
            let mut some = [0; 4096];
            let count = self.stream.read(&mut some).unwrap();
            assert!(count > 0, "the server says nothing instead of {name}");
            self.received.extend_from_slice(&some[..count]);
        }
    }
}
