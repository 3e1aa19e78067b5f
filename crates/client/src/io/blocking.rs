//! A connection on a blocking socket, for a thread of its own: one request at a time, and then the bare
//! socket for who wants to speak AMQP faster than values can be made (the load generator).

mod stream;

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use amqp::Method;
use bytes::{Buf, Bytes, BytesMut};

use super::tls;
use crate::connection::{Agreed, Core, Event, Input};
use crate::error::Error;
use crate::limits::RECEIVE_BYTES;
use crate::options::Options;
use crate::url::Url;

pub use stream::Stream;

/// An open connection on a blocking socket.
pub struct Blocking {
    core: Core,
    socket: Stream,
    events: Vec<Event>,
    answer_wait: Duration,
    scratch: Vec<u8>,
    next_channel: u16,
}

/// A connection taken apart.
pub struct Parts {
    pub socket: Stream,
    pub agreed: Agreed,
    /// Received and not looked at.
    pub received: BytesMut,
}

impl Blocking {
    /// Connects and logs in, once.
    ///
    /// # Errors
    /// The server cannot be reached, is not believed (TLS), or refuses.
    pub fn open(url: &Url, options: &Options) -> Result<Self, Error> {
        let options = options.with(url);
        let address = format!("{}:{}", url.host, url.port);
        let done_by = Instant::now() + options.answer_wait;
        let tcp = connect(url, options.answer_wait)
            .map_err(|error| Error::Unreachable { address, why: error.to_string() })?;
        let socket = match &url.tls {
            None => Stream::plain(tcp),
            Some(tls) => Stream::sealed(url, tls, tcp, done_by)?,
        };
        let mut connection = Self {
            core: Core::new(url, &options, Instant::now()),
            socket,
            events: Vec::new(),
            answer_wait: options.answer_wait,
            scratch: vec![0; RECEIVE_BYTES],
            next_channel: 1,
        };
        while connection.events.is_empty() {
            if let Err(error) = connection.turn() {
                return Err(tls::before_opening(url, connection.socket.tls_failure(), error));
            }
        }
        assert_eq!(connection.events.remove(0), Event::Opened, "a handshake ends with open-ok");
        Ok(connection)
    }

    /// Opens the next channel: 1, 2, ...
    ///
    /// # Errors
    /// The server refuses, or the connection is lost.
    pub fn open_channel(&mut self) -> Result<u16, Error> {
        let channel = self.next_channel;
        self.next_channel += 1;
        self.core.open_channel(channel);
        self.answer(channel, "channel.open")?;
        Ok(channel)
    }

    /// Sends a request and gives its answer's payload (`Method::decode`).
    ///
    /// # Errors
    /// [`Error::ChannelClosed`] if the server refuses: the channel is gone then.
    pub fn call(&mut self, channel: u16, method: &Method<'_>) -> Result<Bytes, Error> {
        self.core.send(channel, method);
        self.answer(channel, method.name())
    }

    /// The bare socket. What was asked has been answered, so normally nothing is in `received`.
    pub fn into_parts(mut self) -> Parts {
        let agreed = self.core.agreed();
        let received = std::mem::take(self.core.buffer());
        Parts { socket: self.socket, agreed, received }
    }

    /// Closes the connection in order.
    ///
    /// # Errors
    /// The server did not answer.
    pub fn close(mut self) -> Result<(), Error> {
        self.core.close(Instant::now() + self.answer_wait);
        while !self.events.contains(&Event::Closed) {
            self.turn()?;
        }
        self.socket.say_goodbye();
        Ok(())
    }

    fn answer(&mut self, channel: u16, to: &str) -> Result<Bytes, Error> {
        let give_up_at = Instant::now() + self.answer_wait;
        loop {
            for event in self.events.drain(..) {
                match event {
                    Event::Method { channel: of, payload } if of == channel => return Ok(payload),
                    Event::ChannelClosed { channel: of, code, text } if of == channel => {
                        return Err(Error::ChannelClosed { code, text });
                    }
                    Event::Opened
                    | Event::Method { .. }
                    | Event::Confirmed { .. }
                    | Event::Content { .. }
                    | Event::ChannelClosed { .. }
                    | Event::Blocked { .. }
                    | Event::Unblocked
                    | Event::Closed => {}
                }
            }
            if Instant::now() >= give_up_at {
                return Err(Error::NoAnswer { to: to.to_owned() });
            }
            self.turn()?;
        }
    }

    /// Writes everything, then reads once.
    fn turn(&mut self) -> Result<(), Error> {
        let result = self.turn_once();
        if result.is_err() && self.core.has_output() {
            // The answer to the server's close, as far as the socket still takes it.
            let _ = self.socket.write_all(self.core.output());
        }
        result
    }

    fn turn_once(&mut self) -> Result<(), Error> {
        if self.core.has_output() {
            let output = self.core.output();
            self.socket.write_all(output).map_err(lost)?;
            output.advance(output.len());
            self.core.step(Instant::now(), Input::Written, &mut self.events)?;
        }
        let input = match self.socket.read(&mut self.scratch) {
            Ok(0) => return Err(Error::Lost { why: "the server closed the socket".into() }),
            Ok(count) => {
                self.core.buffer().extend_from_slice(&self.scratch[..count]);
                Input::Received
            }
            Err(error) if is_timeout(error.kind()) => Input::DeadlinePassed,
            Err(error) => return Err(lost(error)),
        };
        self.core.step(Instant::now(), input, &mut self.events)
    }
}

fn is_timeout(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

fn connect(url: &Url, wait: Duration) -> std::io::Result<TcpStream> {
    let mut last = std::io::Error::other("the name has no address");
    for address in (url.host.as_str(), url.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, wait) {
            Ok(socket) => {
                socket.set_nodelay(true)?;
                socket.set_read_timeout(Some(Duration::from_millis(100)))?;
                return Ok(socket);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[expect(clippy::needless_pass_by_value, reason = "it is the argument of map_err")]
fn lost(error: std::io::Error) -> Error {
    Error::Lost { why: error.to_string() }
}
