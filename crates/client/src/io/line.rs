//! A core and its socket: moves bytes between them, and waits. Decides nothing.

use std::future::pending;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use amqp::Method;
use bytes::{Buf, Bytes};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{sleep_until, timeout, timeout_at};

use super::socket::Socket;
use super::tls;
use crate::connection::{Core, Event, Input};
use crate::error::Error;
use crate::options::Options;
use crate::url::Url;

/// An open connection. Every wait can be cancelled without losing anything.
pub(super) struct Line {
    pub(super) core: Core,
    socket: Socket,
    /// What the core told and nobody has taken.
    pub(super) events: Vec<Event>,
    answer_wait: Duration,
    pub(super) is_blocked: bool,
}

impl Line {
    pub(super) async fn open(url: &Url, options: &Options) -> Result<Self, Error> {
        let options = options.with(url);
        let address = format!("{}:{}", url.host, url.port);
        let unreachable = |why: String| Error::Unreachable { address: address.clone(), why };
        let socket = timeout(options.answer_wait, connect(url))
            .await
            .map_err(|_| unreachable("no answer in time".into()))?
            .map_err(|error| match error {
                Error::Lost { why } => unreachable(why),
                told => told,
            })?;
        Self::over(socket, url, &options).await
    }

    /// Opens a connection over a socket that is there.
    pub(super) async fn over(socket: Socket, url: &Url, options: &Options) -> Result<Self, Error> {
        let mut line = Self {
            core: Core::new(url, options, Instant::now()),
            socket,
            events: Vec::new(),
            answer_wait: options.answer_wait,
            is_blocked: false,
        };
        while line.events.is_empty() {
            if let Err(error) = line.turn().await {
                return Err(tls::before_opening(url, line.socket.tls_failure(), error));
            }
        }
        assert_eq!(line.events.remove(0), Event::Opened, "a handshake ends with open-ok");
        Ok(line)
    }

    /// Opens the next free channel.
    pub(super) async fn open_channel(&mut self) -> Result<u16, Error> {
        let free = self.core.free_channel();
        let channel = free.ok_or_else(|| Error::invalid("every channel is in use"))?;
        self.core.open_channel(channel);
        self.answer(channel, "channel.open").await?;
        Ok(channel)
    }

    /// Sends a request and waits for its answer.
    pub(super) async fn call(&mut self, channel: u16, method: &Method<'_>) -> Result<Bytes, Error> {
        self.core.send(channel, method);
        match self.answer(channel, method.name()).await? {
            Event::Method { payload, .. } => Ok(payload),
            Event::Opened
            | Event::Confirmed { .. }
            | Event::Content { .. }
            | Event::ChannelClosed { .. }
            | Event::Blocked { .. }
            | Event::Unblocked
            | Event::Closed => {
                Err(Error::protocol(format!("{} was answered with a message", method.name())))
            }
        }
    }

    /// The next method or get-ok on `channel`; deliveries and confirms that come before stay in `events`.
    pub(super) async fn answer(&mut self, channel: u16, to: &str) -> Result<Event, Error> {
        let until = tokio::time::Instant::now() + self.answer_wait;
        let mut seen = 0;
        loop {
            while let Some(event) = self.events.get(seen) {
                let is_answer = match event {
                    Event::Method { channel: number, .. }
                    | Event::ChannelClosed { channel: number, .. } => *number == channel,
                    Event::Content { channel: number, content } => {
                        *number == channel && Method::peek_ids(&content.method) == Some((60, 71))
                    }
                    Event::Opened
                    | Event::Confirmed { .. }
                    | Event::Blocked { .. }
                    | Event::Unblocked
                    | Event::Closed => false,
                };
                if is_answer {
                    return match self.events.remove(seen) {
                        Event::ChannelClosed { code, text, .. } => {
                            Err(Error::ChannelClosed { code, text })
                        }
                        event => Ok(event),
                    };
                }
                seen += 1;
            }
            timeout_at(until, self.turn())
                .await
                .map_err(|_| Error::NoAnswer { to: to.to_owned() })??;
        }
    }

    /// Waits until something happened: bytes came or went, or a deadline passed.
    pub(super) async fn turn(&mut self) -> Result<(), Error> {
        self.turn_if(true).await
    }

    /// As [`Line::turn`]; takes bytes from the socket only if it `reads`. What comes meanwhile waits in the kernel, and
    /// behind that at the server.
    pub(super) async fn turn_if(&mut self, reads: bool) -> Result<(), Error> {
        if self.write_ahead()? {
            return Ok(());
        }
        let deadline = self.core.deadline();
        let input = loop {
            tokio::select! {
                ready = self.socket.readable(), if reads => {
                    ready.map_err(lost)?;
                    match self.socket.try_read_buf(self.core.buffer()) {
                        Ok(0) => return Err(lost_at_end()),
                        Ok(_) => break Input::Received,
                        Err(error) if error.kind() == ErrorKind::WouldBlock => (),
                        Err(error) => return Err(lost(error)),
                    }
                }
                ready = self.socket.writable(), if self.has_output() => {
                    ready.map_err(lost)?;
                    // The next turn writes, if the socket is still willing.
                    return Ok(());
                }
                () = wait_until(deadline) => break match reads {
                    true => Input::DeadlinePassed,
                    false => Input::DeadlineUnread,
                },
            }
        };
        self.step(input).await
    }

    async fn step(&mut self, input: Input) -> Result<(), Error> {
        let known = self.events.len();
        let result = self.core.step(Instant::now(), input, &mut self.events);
        for event in &self.events[known..] {
            match event {
                Event::Blocked { .. } => self.is_blocked = true,
                Event::Unblocked => self.is_blocked = false,
                Event::Opened
                | Event::Method { .. }
                | Event::Confirmed { .. }
                | Event::Content { .. }
                | Event::ChannelClosed { .. }
                | Event::Closed => {}
            }
        }
        if result.is_err() && self.core.has_output() {
            // The answer to the server's close, as far as the socket still takes it.
            let _ = timeout(Duration::from_secs(1), self.write_all()).await;
        }
        result
    }

    async fn write_all(&mut self) -> Result<(), Error> {
        while self.has_output() {
            self.socket.writable().await.map_err(lost)?;
            self.write_ahead()?;
        }
        Ok(())
    }

    /// Whether bytes wait for the socket.
    pub(super) fn has_output(&self) -> bool {
        self.core.has_output() || self.socket.has_sealed()
    }

    /// Writes everything that waits; reads on meanwhile, so that neither side can block the other.
    pub(super) async fn flush(&mut self) -> Result<(), Error> {
        while self.has_output() {
            self.turn().await?;
        }
        Ok(())
    }

    /// Hands over to the socket what it takes without waiting; says whether it took anything.
    pub(super) fn write_ahead(&mut self) -> Result<bool, Error> {
        let mut has_written = false;
        while self.has_output() {
            match self.socket.try_write(self.core.output()) {
                Ok(count) => self.core.output().advance(count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(lost(error)),
            }
            has_written = true;
        }
        if has_written {
            self.core.step(Instant::now(), Input::Written, &mut self.events)?;
        }
        Ok(has_written)
    }

    /// Closes the connection and waits for the server's word on it.
    pub(super) async fn close(mut self) -> Result<(), Error> {
        self.core.close(Instant::now() + self.answer_wait);
        while !self.events.contains(&Event::Closed) {
            self.turn().await?;
        }
        self.socket.say_goodbye();
        Ok(())
    }
}

async fn connect(url: &Url) -> Result<Socket, Error> {
    let tcp = connect_tcp(url).await.map_err(lost)?;
    match &url.tls {
        Some(tls) => tls::connect(url, tls, tcp).await,
        None => Ok(Socket::Plain(tcp)),
    }
}

async fn connect_tcp(url: &Url) -> std::io::Result<TcpStream> {
    let mut last = std::io::Error::other("the name has no address");
    for address in lookup_host((url.host.as_str(), url.port)).await? {
        match TcpStream::connect(address).await {
            Ok(socket) => {
                socket.set_nodelay(true)?;
                return Ok(socket);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn wait_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline.into()).await,
        None => pending().await,
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is the argument of map_err")]
fn lost(error: std::io::Error) -> Error {
    Error::Lost { why: error.to_string() }
}

fn lost_at_end() -> Error {
    Error::Lost { why: "the server closed the socket".into() }
}
