//! Tells the service manager that started the process how far it is: the protocol of sd_notify(3).
//!
//! The manager names a socket in the variable `NOTIFY_SOCKET`: a path, or an abstract name behind an `@`. Each message
//! is one datagram. Without the variable nobody is told. A manager that does not read delays nobody for long.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The variable that names the socket.
const VARIABLE: &str = "NOTIFY_SOCKET";

/// How long a message waits for room at the manager's socket. Then it is lost.
const WAIT_MAX: Duration = Duration::from_millis(250);

/// Whoever started this process, if it wants to be told.
#[derive(Debug)]
pub struct Supervisor {
    /// Where it listens.
    address: Option<OsString>,
}

impl Supervisor {
    /// That of this process.
    pub fn of_process() -> Self {
        Self::at(std::env::var_os(VARIABLE))
    }

    /// One that listens there.
    pub fn at(address: Option<OsString>) -> Self {
        Self { address: address.filter(|address| !address.is_empty()) }
    }

    /// What the process does now, for people: `systemctl status` shows it.
    pub fn status(&self, status: &str) {
        self.tell(&line("STATUS", status));
    }

    /// The start is over.
    pub fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\n{}", line("STATUS", status)));
    }

    /// The process has begun to stop.
    pub fn stopping(&self, status: &str) {
        self.tell(&format!("STOPPING=1\n{}", line("STATUS", status)));
    }

    fn tell(&self, message: &str) {
        let Some(address) = &self.address else { return };
        if let Err(error) = send(address, message.as_bytes()) {
            tracing::warn!(
                %error,
                socket = %address.display(),
                "cannot tell the service manager how far this process is; the process goes on. If the manager waits for \
                 the end of the start, it may end the process: look at the socket that NOTIFY_SOCKET names"
            );
        }
    }
}

/// A value must not hold the end of its line.
fn line(name: &str, value: &str) -> String {
    format!("{name}={}\n", value.replace('\n', " "))
}

fn send(address: &OsStr, message: &[u8]) -> io::Result<()> {
    let address = match address.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(address)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(WAIT_MAX))?;
    socket.send_to_addr(message, &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(socket: &UnixDatagram) -> String {
        let mut message = [0; 512];
        let count = socket.recv(&mut message).unwrap();
        String::from_utf8_lossy(&message[..count]).into_owned()
    }

    #[test]
    fn the_manager_hears_how_far_the_process_is_behind_a_path_and_an_abstract_name() {
        let id = std::process::id();
        let path = std::env::temp_dir().join(format!("supervisor-{id}"));
        let _ = std::fs::remove_file(&path);
        let name = format!("millrace-supervisor-{id}");
        let by_name = SocketAddr::from_abstract_name(&name).unwrap();
        let places = [
            (UnixDatagram::bind(&path).unwrap(), path.clone().into_os_string()),
            (UnixDatagram::bind_addr(&by_name).unwrap(), format!("@{name}").into()),
        ];
        for (socket, address) in places {
            let supervisor = Supervisor::at(Some(address));
            supervisor.status("waits");
            supervisor.ready("serves\nat a port");
            supervisor.stopping("stops");
            assert_eq!(heard(&socket), "STATUS=waits\n");
            assert_eq!(heard(&socket), "READY=1\nSTATUS=serves at a port\n");
            assert_eq!(heard(&socket), "STOPPING=1\nSTATUS=stops\n");
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_manager_that_is_gone_delays_nobody() {
        for address in ["/nowhere/at-all", "vsock:2:1234", "@nobody-listens-here", ""] {
            Supervisor::at(Some(address.into())).ready("serves");
        }
        Supervisor::at(None).ready("serves");
    }

    #[test]
    fn a_manager_that_does_not_read_delays_nobody_for_long() {
        let name = format!("millrace-supervisor-full-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let _socket = UnixDatagram::bind_addr(&address).unwrap();
        let address = OsString::from(format!("@{name}"));
        let mut is_full = false;
        // More than any kernel keeps for one socket.
        for _ in 0..100_000 {
            is_full = send(&address, b"STATUS=x\n").is_err();
            if is_full {
                break;
            }
        }
        assert!(is_full, "nothing bounds what waits for the manager");
        Supervisor::at(Some(address)).ready("serves");
    }
}
