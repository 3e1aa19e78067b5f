//! The bare socket of one worker, under TLS if the URL says so: reads in large chunks, writes whole batches.

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use amqp::Method;
use bytes::{Buf, BytesMut};
use client::io::blocking::{Blocking, Parts, Stream};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::scan::{Listener, scan};

/// Bytes asked of the socket by one read.
const RECEIVE_BYTES: usize = 256 * 1024;
/// A worker looks this often whether the run has ended, while nothing else wakes it.
pub(super) const LOOK_AROUND: Duration = Duration::from_millis(50);
/// How long to wait for the server's word on our close.
const CLOSE_WAIT_LOOKS: u32 = 100;

/// A connection taken over from the client.
pub(super) struct Wire {
    socket: Stream,
    buffer: Vec<u8>,
    /// Received and not scanned: `buffer[start..end]`.
    start: usize,
    end: usize,
    pub(super) frame_max: u32,
}

impl Wire {
    pub(super) fn new(connection: Blocking) -> Result<Self, String> {
        let Parts { socket, agreed, received } = connection.into_parts();
        socket.set_read_timeout(Some(LOOK_AROUND)).map_err(|error| error.to_string())?;
        socket.set_write_timeout(Some(LOOK_AROUND)).map_err(|error| error.to_string())?;
        // A frame always fits behind the rest of another.
        let mut buffer = vec![0; RECEIVE_BYTES.max(2 * agreed.frame_max as usize)];
        let end = received.len();
        buffer[..end].copy_from_slice(&received);
        Ok(Self { socket, buffer, start: 0, end, frame_max: agreed.frame_max })
    }

    /// Reads once, for at most `LOOK_AROUND`. False: nothing came. What came is for `scan`.
    pub(super) fn read(&mut self) -> Result<bool, String> {
        match self.socket.read(&mut self.buffer[self.end..]) {
            Ok(0) => return Err("the server closed the socket".into()),
            Ok(count) => self.end += count,
            Err(error) if is_timeout(error.kind()) => return Ok(false),
            Err(error) => return Err(format!("the connection was lost: {error}")),
        }
        Ok(true)
    }

    /// Tells `listener` about every whole frame that was read.
    pub(super) fn scan(&mut self, listener: &mut impl Listener) -> Result<(), String> {
        let received = &self.buffer[self.start..self.end];
        self.start += scan(received, self.frame_max as usize, listener)?;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.buffer.len() - self.end < self.buffer.len() / 2 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        Ok(())
    }

    /// Waits for bytes at most so long, without reading any. True: there are some.
    pub(super) fn wait(&self, nanos: u64) -> Result<bool, String> {
        if self.socket.has_unread() {
            return Ok(true);
        }
        let timeout = Timespec {
            tv_sec: (nanos / 1_000_000_000) as i64,
            tv_nsec: (nanos % 1_000_000_000) as i64,
        };
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(count) => Ok(count > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(format!("cannot wait for the socket: {error}")),
        }
    }

    /// Writes some of `bytes`; 0 if the socket took nothing for `LOOK_AROUND`.
    pub(super) fn send_some(&mut self, bytes: &[u8]) -> Result<usize, String> {
        match self.socket.write(bytes) {
            Ok(count) => Ok(count),
            Err(error) if is_timeout(error.kind()) => Ok(0),
            Err(error) => Err(format!("the connection was lost: {error}")),
        }
    }

    /// Writes everything, however long it takes.
    pub(super) fn send(&mut self, mut bytes: &[u8]) -> Result<(), String> {
        while !bytes.is_empty() {
            bytes.advance(self.send_some(bytes)?);
        }
        Ok(())
    }

    /// Closes the connection in order: what the server had taken before is then done with.
    pub(super) fn close(mut self) -> Result<(), String> {
        let mut bytes = BytesMut::new();
        let close =
            amqp::connection::Close { reply_code: 200, reply_text: "bye", ..Default::default() };
        amqp::Encoder::new(&mut bytes, self.frame_max).method(0, &Method::ConnectionClose(close));
        self.send(&bytes)?;
        let mut goodbye = Goodbye(false);
        for _ in 0..CLOSE_WAIT_LOOKS {
            if self.read()? {
                self.scan(&mut goodbye)?;
            }
            if goodbye.0 {
                self.socket.say_goodbye();
                return Ok(());
            }
        }
        Err("the server did not answer connection.close".into())
    }
}

fn is_timeout(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// Hears nothing but `connection.close-ok`.
struct Goodbye(bool);

impl Listener for Goodbye {
    fn delivered(&mut self, _: u64, _: bool) -> Result<(), String> {
        Ok(())
    }

    fn confirmed(&mut self, _: u64, _: bool, _: bool) -> Result<(), String> {
        Ok(())
    }

    fn content(&mut self, _: u64) -> Result<(), String> {
        Ok(())
    }

    fn body(&mut self, _: &[u8]) -> Result<(), String> {
        Ok(())
    }

    fn method(&mut self, _: u16, payload: &[u8]) -> Result<(), String> {
        self.0 |= Method::peek_ids(payload) == Some((10, 51));
        Ok(())
    }
}

/// What a method that neither delivers nor confirms means for a load generator.
pub(super) enum Notice {
    Blocked,
    Unblocked,
    /// An answer, or what does not matter here.
    Other,
}

/// Reads a method; closes and cancellations are the end of the run, in the server's words.
pub(super) fn notice(payload: &[u8]) -> Result<Notice, String> {
    match Method::decode(payload).map_err(|error| error.to_string())? {
        Method::ConnectionBlocked(_) => Ok(Notice::Blocked),
        Method::ConnectionUnblocked(_) => Ok(Notice::Unblocked),
        Method::ConnectionClose(close) => Err(format!(
            "the server closed the connection: {} {}",
            close.reply_code, close.reply_text
        )),
        Method::ChannelClose(close) => {
            Err(format!("the server refused: {} {}", close.reply_code, close.reply_text))
        }
        Method::BasicCancel(_) => {
            Err("the server cancelled the consumer: its queue is gone".into())
        }
        _ => Ok(Notice::Other),
    }
}
