//! A network between two nodes that can be cut and held.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Passes every connection on to `target`.
pub(super) struct Proxy {
    pub(super) address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    streams: Mutex<Vec<TcpStream>>,
    is_holding: AtomicBool,
}

impl Proxy {
    pub(super) fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let near = stream.unwrap();
                let Ok(far) = TcpStream::connect(target) else { continue };
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    shared.streams.lock().unwrap().push(from.try_clone().unwrap());
                    let shared = Arc::clone(&shared);
                    std::thread::spawn(move || pump(from, to, &shared));
                }
            }
        });
        Self { address, state }
    }

    /// Closes all connections; new ones work.
    pub(super) fn cut(&self) {
        for stream in self.state.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// From here on nothing passes, and nothing is closed.
    pub(super) fn hold(&self, is_holding: bool) {
        self.state.is_holding.store(is_holding, Ordering::Relaxed);
    }
}

fn pump(mut from: TcpStream, mut to: TcpStream, state: &State) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let count = from.read(&mut buffer).unwrap_or(0);
        if count == 0 {
            let _ = to.shutdown(Shutdown::Write);
            return;
        }
        if state.is_holding.load(Ordering::Relaxed) {
            continue;
        }
        if to.write_all(&buffer[..count]).is_err() {
            return;
        }
    }
}
