//! A connection to another node, and frames on it.

use std::io::{self, IoSlice};
use std::time::Duration;

use bytes::BytesMut;
use machine::NodeId;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::peer::Error;
use crate::peer::frame::{self, Frame};
use crate::peer::gather::Gather;
use crate::peer::handshake::Refusal;

/// Slices of one vectored write.
const SLICES_MAX: usize = 64;

/// Anything that bytes go through: TCP, or TLS on it.
pub(super) trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Socket for T {}

/// A connection whose other end is known.
pub(super) struct Line {
    pub(super) socket: Box<dyn Socket>,
    /// Bytes that came behind the last frame that was read.
    pub(super) read: BytesMut,
    /// The version of the protocol that both sides speak.
    pub(super) protocol: u16,
}

/// Why a connection ended, or never began.
#[derive(Debug)]
pub(super) enum Broken {
    /// Closed by the other side.
    Closed,
    /// Nothing came for so long.
    Silent(Duration),
    Socket(io::Error),
    /// Bytes that are no messages.
    Input(Error),
    /// A message of ours that does not fit a frame.
    Output(Error),
    /// More waited to be sent than may.
    Overflow,
    /// We do not talk to that node.
    Refused(Refusal),
    /// That node does not talk to us, and says why.
    RefusedByPeer(String),
    /// The same, for good.
    Expelled(String),
    /// The same node has connected again.
    Replaced,
    Tls(String),
}

impl std::fmt::Display for Broken {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Closed => out.write_str("the connection was closed"),
            Self::Silent(time) => {
                write!(out, "the other node sent nothing for {} ms", time.as_millis())
            }
            Self::Socket(error) => write!(out, "{error}"),
            Self::Input(error) => write!(out, "the other node sent an invalid frame: {error}"),
            Self::Output(error) => write!(out, "this node could not send a message: {error}"),
            Self::Overflow => {
                out.write_str("the other node takes messages too slowly: too many wait to be sent")
            }
            Self::Refused(refusal) => write!(out, "{refusal}"),
            Self::RefusedByPeer(text) | Self::Expelled(text) => {
                write!(out, "the other node refuses this node: {text}")
            }
            Self::Replaced => out.write_str("the other node has connected again"),
            Self::Tls(text) => write!(out, "TLS: {text}"),
        }
    }
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Socket(error),
        }
    }
}

/// A connection to `address`, within `timeout`.
pub(super) async fn dial(address: &str, timeout: Duration) -> Result<TcpStream, Broken> {
    match tokio::time::timeout(timeout, TcpStream::connect(address)).await {
        Ok(stream) => {
            let stream = stream?;
            stream.set_nodelay(true)?;
            Ok(stream)
        }
        Err(_) => Err(Broken::Silent(timeout)),
    }
}

/// The next frame of at most `bytes_max`.
pub(super) async fn read_frame(line: &mut Line, bytes_max: usize) -> Result<Frame, Broken> {
    loop {
        if let Some(frame) = frame::take(&mut line.read, bytes_max).map_err(Broken::Input)? {
            return Ok(frame);
        }
        line.read.reserve(bytes_max.min(1024));
        if line.socket.read_buf(&mut line.read).await? == 0 {
            return Err(Broken::Closed);
        }
    }
}

/// Writes everything that was gathered, and forgets it.
pub(super) async fn write<W: AsyncWrite + Unpin>(
    socket: &mut W,
    gather: &mut Gather,
) -> Result<(), Broken> {
    let mut written = 0;
    while written < gather.bytes() {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let count = gather.slices(written, &mut slices);
        match socket.write_vectored(&slices[..count]).await? {
            0 => return Err(Broken::Closed),
            bytes => written += bytes,
        }
    }
    // TLS keeps what the socket did not take.
    socket.flush().await?;
    gather.clear();
    Ok(())
}

/// `N` bytes that nobody can guess.
pub(in crate::io) fn draw<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        let flags = rustix::rand::GetRandomFlags::empty();
        match rustix::rand::getrandom(&mut bytes[filled..], flags) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("the system gives no random numbers: {error}"),
        }
    }
    bytes
}

/// `base`, give or take a quarter of it: nodes that lost each other do not try again in step.
pub(super) fn jitter(base: Duration) -> Duration {
    let chance = u32::from(u16::from_le_bytes(draw()));
    base * 3 / 4 + base / 2 * chance / u32::from(u16::MAX)
}

/// How a node is called in the log.
pub(super) fn name(node: NodeId) -> String {
    format!("node {}", node.0)
}
