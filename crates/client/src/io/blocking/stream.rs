//! A blocking socket, plain or under TLS, that a timeout may interrupt at any time.
//!
//! Reading goes on while the other side takes nothing, and writing while it says nothing: a session never waits for one
//! in order to do the other. Bytes that were encrypted and that the kernel did not take go out before the next ones, and
//! before anything is read.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustls::ClientConnection;

use super::is_timeout;
use crate::error::Error;
use crate::io::tls;
use crate::limits::RECEIVE_BYTES;
use crate::url::{Tls, Url};

/// A socket to a server, plain or under TLS.
pub struct Stream {
    tcp: TcpStream,
    sealed: Option<Box<Sealed>>,
}

/// TLS on a socket, after its handshake.
struct Sealed {
    session: ClientConnection,
    /// Where encrypted bytes are read to.
    scratch: Vec<u8>,
    /// Those that are not decrypted yet.
    unopened: Range<usize>,
    /// The last read ended because its buffer was full.
    has_more: bool,
    has_ended: bool,
    /// Why the session ended, if TLS was the reason.
    failure: Option<rustls::Error>,
}

impl Stream {
    pub(super) fn plain(tcp: TcpStream) -> Self {
        Self { tcp, sealed: None }
    }

    /// Does the handshake, which must be done by `done_by`.
    pub(super) fn sealed(
        url: &Url,
        tls: &Tls,
        mut tcp: TcpStream,
        done_by: Instant,
    ) -> Result<Self, Error> {
        let mut session = tls::session(url, tls)?;
        while session.is_handshaking() {
            match session.complete_io(&mut tcp) {
                Ok(_) => (),
                Err(error) if is_timeout(error.kind()) => (),
                Err(error) => return Err(tls::failed(url, tls, &error)),
            }
            if Instant::now() >= done_by {
                return Err(Error::NoAnswer { to: "the TLS handshake".into() });
            }
        }
        let sealed = Sealed {
            session,
            scratch: vec![0; RECEIVE_BYTES],
            unopened: 0..0,
            has_more: false,
            has_ended: false,
            failure: None,
        };
        Ok(Self { tcp, sealed: Some(Box::new(sealed)) })
    }

    /// How long a read waits before it ends with `WouldBlock`.
    ///
    /// # Errors
    /// The system refuses.
    pub fn set_read_timeout(&self, wait: Option<Duration>) -> io::Result<()> {
        self.tcp.set_read_timeout(wait)
    }

    /// How long a write waits before it ends with `WouldBlock`.
    ///
    /// # Errors
    /// The system refuses.
    pub fn set_write_timeout(&self, wait: Option<Duration>) -> io::Result<()> {
        self.tcp.set_write_timeout(wait)
    }

    /// Whether a read gives something that was received before: then there is no use in waiting for the socket.
    pub fn has_unread(&self) -> bool {
        self.sealed.as_ref().is_some_and(|sealed| sealed.has_more || !sealed.unopened.is_empty())
    }

    /// Ends the TLS session in order, as far as the kernel takes that.
    pub fn say_goodbye(&mut self) {
        if let Some(sealed) = &mut self.sealed {
            sealed.session.send_close_notify();
            // The server has closed the connection already: nobody misses the goodbye.
            let _ = sealed.push(&mut self.tcp);
        }
    }

    /// What went wrong with TLS, if that is why a read failed.
    pub(super) fn tls_failure(&self) -> Option<&rustls::Error> {
        self.sealed.as_ref().and_then(|sealed| sealed.failure.as_ref())
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.sealed {
            None => self.tcp.read(into),
            Some(sealed) => sealed.read(&mut self.tcp, into),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.sealed {
            None => self.tcp.write(bytes),
            Some(sealed) => sealed.write(&mut self.tcp, bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sealed.as_mut().map_or(Ok(()), |sealed| sealed.push(&mut self.tcp))
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tcp.as_fd()
    }
}

impl Sealed {
    /// Gives all that one read of the socket brings, as far as it fits. `WouldBlock`: that was nothing, or less than a
    /// record. Who waited for the socket before is not made to wait for the rest.
    fn read(&mut self, tcp: &mut TcpStream, into: &mut [u8]) -> io::Result<usize> {
        match self.push(tcp) {
            Err(error) if !is_timeout(error.kind()) => return Err(error),
            Ok(()) | Err(_) => (),
        }
        let (mut count, mut has_read) = (0, false);
        loop {
            count += self.take(&mut into[count..])?;
            self.has_more = count == into.len();
            let is_enough = count > 0 && self.unopened.is_empty();
            if self.has_more || is_enough || self.has_ended {
                return Ok(count);
            }
            if self.unopened.is_empty() {
                if has_read {
                    return Err(ErrorKind::WouldBlock.into());
                }
                has_read = true;
                let read = tcp.read(&mut self.scratch)?;
                if read == 0 {
                    return Ok(0);
                }
                self.unopened = 0..read;
            }
            self.open()?;
        }
    }

    /// What is decrypted.
    fn take(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.session.reader().read(into) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
            taken => taken,
        }
    }

    /// Decrypts some of what was read. Everything decrypted before was taken.
    fn open(&mut self) -> io::Result<()> {
        let mut rest = &self.scratch[self.unopened.clone()];
        self.session.read_tls(&mut rest)?;
        self.unopened.start = self.unopened.end - rest.len();
        let state = self.session.process_new_packets().map_err(|error| {
            self.failure = Some(error.clone());
            io::Error::other(error)
        })?;
        self.has_ended |= state.peer_has_closed();
        Ok(())
    }

    fn write(&mut self, tcp: &mut TcpStream, bytes: &[u8]) -> io::Result<usize> {
        self.push(tcp)?;
        let count = self.session.writer().write(bytes)?;
        match self.push(tcp) {
            Err(error) if !is_timeout(error.kind()) => Err(error),
            Ok(()) | Err(_) => Ok(count),
        }
    }

    /// Hands over to the kernel what is encrypted.
    fn push(&mut self, tcp: &mut TcpStream) -> io::Result<()> {
        while self.session.wants_write() {
            self.session.write_tls(tcp)?;
        }
        Ok(())
    }
}
