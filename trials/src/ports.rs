//! Ports for what a trial starts: nobody else takes one between the choice and the start, or while its server is down.
//!
//! They lie below those that the kernel gives to outgoing connections, of which a trial has thousands, and are claimed
//! by a lock on a file that all trials of a user share.

#![allow(clippy::disallowed_methods, reason = "asks the system which ports are free")]

use std::fs::{File, TryLockError};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::sync::atomic::{AtomicU16, Ordering};

/// Where trials look, if the kernel leaves that alone.
const FIRST: u16 = 15_000;
const END: u16 = 32_000;
/// So many ports are needed, or the kernel's are taken from.
const ENOUGH: u16 = 2_000;
/// Erlang's port mapper for the nodes of trials.
pub const PORT_MAPPER: u16 = 24_369;
/// Where the kernel says which ports it gives away itself.
const OUTGOING: &str = "/proc/sys/net/ipv4/ip_local_port_range";

/// A port of this process, to its end. The one after it is, too: RabbitMQ needs two.
///
/// # Errors
/// All are taken, or claims cannot be written down.
pub fn free() -> io::Result<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let user = rustix::process::getuid().as_raw();
    let folder = std::env::temp_dir().join(format!("millrace-trials-ports-{user}"));
    std::fs::create_dir_all(&folder)?;
    let end = end(first_outgoing());
    let pairs = (end - FIRST) / 2;
    // Different processes begin at different ones.
    let start = std::process::id().wrapping_mul(37);
    for _ in 0..pairs {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let place = start.wrapping_add(u32::from(step)) % u32::from(pairs);
        let port = FIRST + 2 * place as u16;
        let is_reserved = (port..=port + 1).contains(&PORT_MAPPER);
        if !is_reserved && claim(&folder, port)? && is_free(port) && is_free(port + 1) {
            return Ok(port);
        }
    }
    Err(io::Error::other(format!("every port from {FIRST} to {end} is taken")))
}

/// Whether nobody listens on it.
pub fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

fn first_outgoing() -> Option<u16> {
    std::fs::read_to_string(OUTGOING).ok()?.split_whitespace().next()?.parse().ok()
}

/// Below the ports that the kernel gives away, unless that leaves too few.
fn end(first_outgoing: Option<u16>) -> u16 {
    match first_outgoing {
        Some(first) if first >= FIRST + ENOUGH => END.min(first),
        _ => END,
    }
}

fn claim(folder: &Path, port: u16) -> io::Result<bool> {
    let file = File::options().create(true).append(true).open(folder.join(port.to_string()));
    let file = file?;
    match file.try_lock() {
        // Claimed to the end of this process.
        Ok(()) => std::mem::forget(file),
        Err(TryLockError::WouldBlock) => return Ok(false),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_given_once_and_its_neighbour_with_it() {
        let mut ports: Vec<u16> = (0..50).map(|_| free().expect("there are thousands")).collect();
        ports.sort_unstable();
        assert!(ports.windows(2).all(|pair| pair[0] + 1 < pair[1]), "{ports:?}");
        assert!(ports.iter().all(|&port| port != PORT_MAPPER && port + 1 != PORT_MAPPER));
        let end = end(first_outgoing());
        assert!(ports.iter().all(|&port| FIRST <= port && port + 1 < end), "{ports:?}");
    }

    #[test]
    fn outgoing_connections_have_their_ports_to_themselves_where_enough_are_left() {
        assert_eq!(end(Some(32_768)), END);
        assert_eq!(end(Some(20_000)), 20_000);
        assert_eq!(end(Some(1024)), END);
        assert_eq!(end(None), END);
    }

    #[test]
    fn what_somebody_has_claimed_is_not_given_away() {
        let folder = std::env::temp_dir().join(format!("millrace-claims-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder can be made");
        assert!(claim(&folder, 1).expect("it can be claimed"));
        assert!(!claim(&folder, 1).expect("it can be looked at"), "the first claim holds");
        std::fs::remove_dir_all(&folder).expect("it can be removed");
    }
}
