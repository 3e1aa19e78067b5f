//! Where nodes of a test listen.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// Addresses with ports below those that the kernel gives to outgoing connections: nobody takes one before its node does.
pub(crate) fn free_addresses(count: usize) -> Vec<String> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 10_000 + (std::process::id() % 300) as u16 * 16;
    let tried = std::iter::from_fn(|| Some(first + NEXT.fetch_add(1, Ordering::Relaxed)));
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let free = tried.take_while(|port| *port < 15_000).filter(is_free).take(count);
    let free: Vec<String> = free.map(|port| format!("127.0.0.1:{port}")).collect();
    assert_eq!(free.len(), count, "ports are free");
    free
}
