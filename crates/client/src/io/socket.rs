//! A socket, plain or under TLS, with the four things that a line does with it: wait until it can be read
//! or written, read what is there, write what it takes.
//!
//! Under TLS nothing decrypted stays behind: a read gives all that came, so waiting for the socket is
//! waiting for news. What was encrypted and not taken by the kernel does stay, and is told by
//! [`Socket::has_sealed`].

use std::io::{self, ErrorKind, Read, Write};

use bytes::BytesMut;
use rustls::ClientConnection;
use tokio::net::{TcpStream, UnixStream};

use crate::limits::RECEIVE_BYTES;

pub(super) enum Socket {
    Plain(TcpStream),
    /// To a server in the same process or on the same machine.
    Local(UnixStream),
    Tls(Box<Sealed>),
}

/// A connection under TLS, after its handshake.
pub(super) struct Sealed {
    tcp: TcpStream,
    session: ClientConnection,
    /// Where encrypted bytes are read to.
    scratch: Vec<u8>,
    /// Why the session ended, if TLS was the reason.
    failure: Option<rustls::Error>,
}

impl Socket {
    pub(super) fn sealed(tcp: TcpStream, session: ClientConnection) -> Self {
        Self::Tls(Box::new(Sealed { tcp, session, scratch: vec![0; RECEIVE_BYTES], failure: None }))
    }

    pub(super) async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Plain(tcp) => tcp.readable().await,
            Self::Local(local) => local.readable().await,
            Self::Tls(sealed) => sealed.tcp.readable().await,
        }
    }

    pub(super) async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Plain(tcp) => tcp.writable().await,
            Self::Local(local) => local.writable().await,
            Self::Tls(sealed) => sealed.tcp.writable().await,
        }
    }

    /// Bytes for the kernel that only the next write hands over.
    pub(super) fn has_sealed(&self) -> bool {
        match self {
            Self::Plain(_) | Self::Local(_) => false,
            Self::Tls(sealed) => sealed.session.wants_write(),
        }
    }

    /// Appends what is there to `into`; 0 is the end.
    pub(super) fn try_read_buf(&mut self, into: &mut BytesMut) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.try_read_buf(into),
            Self::Local(local) => local.try_read_buf(into),
            Self::Tls(sealed) => sealed.try_read_buf(into),
        }
    }

    /// Writes as much of `bytes` as the kernel takes now, or under TLS as fits behind what it did not take.
    pub(super) fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.try_write(bytes),
            Self::Local(local) => local.try_write(bytes),
            Self::Tls(sealed) => sealed.try_write(bytes),
        }
    }

    /// What went wrong with TLS, if that is why a read failed.
    pub(super) fn tls_failure(&self) -> Option<&rustls::Error> {
        match self {
            Self::Plain(_) | Self::Local(_) => None,
            Self::Tls(sealed) => sealed.failure.as_ref(),
        }
    }

    /// Ends the TLS session in order, as far as the kernel takes that without waiting.
    pub(super) fn say_goodbye(&mut self) {
        if let Self::Tls(sealed) = self {
            sealed.session.send_close_notify();
            // The server has closed the connection already: nobody misses the goodbye.
            let _ = sealed.send();
        }
    }
}

impl Sealed {
    fn try_read_buf(&mut self, into: &mut BytesMut) -> io::Result<usize> {
        let before = into.len();
        loop {
            let count = self.tcp.try_read(&mut self.scratch)?;
            let has_ended = self.open(count, into)? || count == 0;
            if into.len() > before || has_ended {
                return Ok(into.len() - before);
            }
            // A part of a record, or nothing for the application: there may be more.
        }
    }

    /// Decrypts the first `count` bytes of the scratch; says whether the server has ended the session.
    fn open(&mut self, count: usize, into: &mut BytesMut) -> io::Result<bool> {
        let mut rest = &self.scratch[..count];
        let mut has_ended = false;
        while !rest.is_empty() {
            self.session.read_tls(&mut rest)?;
            let state = self.session.process_new_packets().map_err(|error| {
                self.failure = Some(error.clone());
                io::Error::other(error)
            })?;
            let from = into.len();
            into.resize(from + state.plaintext_bytes_to_read(), 0);
            if into.len() > from {
                self.session.reader().read_exact(&mut into[from..])?;
            }
            has_ended |= state.peer_has_closed();
        }
        Ok(has_ended)
    }

    fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.send()?;
        let count = self.session.writer().write(bytes)?;
        match self.send() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            Ok(()) | Err(_) => Ok(count),
        }
    }

    fn send(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            self.session.write_tls(&mut Kernel(&self.tcp))?;
        }
        Ok(())
    }
}

/// A socket that is written to without waiting.
struct Kernel<'a>(&'a TcpStream);

impl Write for Kernel<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, parts: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
