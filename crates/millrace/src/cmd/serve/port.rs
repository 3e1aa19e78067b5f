//! The port for AMQP clients: taken before anything else is done, opened when the node can serve.
#![allow(clippy::disallowed_methods, reason = "a shell: binds sockets")]

use std::net::{SocketAddr, TcpListener as Probe, ToSocketAddrs as _};

use broker::limits::LISTEN_BACKLOG;
use tokio::net::{TcpListener, TcpSocket};

/// An address that is this process's, where nobody can connect yet.
#[derive(Debug)]
pub(super) struct Port {
    socket: TcpSocket,
    /// As it was configured.
    address: String,
    /// The option that configures it.
    flag: &'static str,
}

impl Port {
    /// Takes the address, so that a node whose port is another's touches no data.
    ///
    /// # Errors
    /// A sentence that says why not, and what to do.
    pub(super) fn take(address: &str, flag: &'static str) -> Result<Self, String> {
        let refused = |error: std::io::Error| {
            format!("{}. The data directory was not touched", refusal(address, flag, &error))
        };
        let mut last = std::io::ErrorKind::AddrNotAvailable.into();
        for resolved in address.to_socket_addrs().map_err(refused)? {
            match bind(resolved) {
                Ok(socket) => return Ok(Self { socket, address: address.to_owned(), flag }),
                Err(error) => last = error,
            }
        }
        Err(refused(last))
    }

    /// Opens it. Wants a runtime.
    ///
    /// # Errors
    /// As [`Port::take`]: another process may have taken the same address at the same time.
    pub(super) fn open(self) -> Result<TcpListener, String> {
        let Self { socket, address, flag } = self;
        socket.listen(LISTEN_BACKLOG.into()).map_err(|error| refusal(&address, flag, &error))
    }
}

fn bind(address: SocketAddr) -> std::io::Result<TcpSocket> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    // Connections of the process before this one may still be dying.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

fn refusal(address: &str, flag: &str, error: &std::io::Error) -> String {
    let who = match error.kind() {
        std::io::ErrorKind::AddrInUse => " (another broker runs there?)",
        _ => "",
    };
    format!(
        "AMQP cannot listen on {address}: {error}{who}. Choose another address with {flag} ADDR:PORT"
    )
}

/// Whether the address for other nodes is free. It is opened later, by the cluster.
///
/// # Errors
/// A sentence that says why not, and what to do.
pub(super) fn probe_peer(address: &str) -> Result<(), String> {
    match Probe::bind(address) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!(
            "The peer port cannot listen on {address}: {error}. Choose another address with --peer-listen \
             ADDR:PORT. The data directory was not touched"
        )),
    }
}

/// Takes the address where `what` is served, which is the option `flag`. Whoever asks before the node answers waits in
/// the kernel's queue.
///
/// # Errors
/// A sentence that says why not, and what to do.
pub(super) fn take_http(address: &str, what: &str, flag: &str) -> Result<Probe, String> {
    Probe::bind(address).map_err(|error| {
        format!(
            "{what} cannot be served on {address}: {error}. Choose another address with {flag} ADDR:PORT. The data \
             directory was not touched"
        )
    })
}
