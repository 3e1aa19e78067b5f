//! What may stand between a relay and its servers: a pooler, and something that drops connections or confirms.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    dead_code,
    reason = "listens and forwards in threads of its own; no test needs everything"
)]

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// Words that somebody looks for; none at first.
#[derive(Debug, Default)]
struct Words(Mutex<Vec<u8>>);

impl Words {
    fn set(&self, words: &str) {
        *self.0.lock().unwrap() = words.as_bytes().to_vec();
    }

    fn are_none(&self) -> bool {
        self.0.lock().unwrap().is_empty()
    }

    fn are_in(&self, bytes: &[u8]) -> bool {
        let words = self.0.lock().unwrap();
        !words.is_empty() && bytes.windows(words.len()).any(|window| window == &words[..])
    }
}

/// Gives the address of something that is given each connection to it, and one to `server`.
fn stand_before(
    server: SocketAddr,
    mut pass: impl FnMut(TcpStream, TcpStream) + Send + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for client in listener.incoming() {
            let (Ok(client), Ok(server)) = (client, TcpStream::connect(server)) else { continue };
            pass(client, server);
        }
    });
    address
}

/// What a dropper's connections do not survive, and how many have not.
#[derive(Debug, Default)]
pub(crate) struct Fatal {
    words: Words,
    pub(crate) drops: AtomicU32,
}

impl Fatal {
    /// A connection that carries `words` to the server is dropped without a word; empty: none is.
    pub(crate) fn set(&self, words: &str) {
        self.words.set(words);
    }
}

/// Forwards to `server`, except what is fatal. Gives the address to connect to.
pub(crate) fn dropper(server: SocketAddr, fatal: &Arc<Fatal>) -> SocketAddr {
    let fatal = fatal.clone();
    stand_before(server, move |client, server| {
        let (from, to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        thread::spawn(move || forward(from, to, |_| true));
        let fatal = fatal.clone();
        thread::spawn(move || {
            forward(client, server, |bytes| {
                let is_fatal = fatal.words.are_in(bytes);
                fatal.drops.fetch_add(u32::from(is_fatal), Ordering::Relaxed);
                !is_fatal
            });
        });
    })
}

/// Until one side ends, or `may_pass` says no of what came since the last look and a little before.
fn forward(mut from: TcpStream, mut to: TcpStream, may_pass: impl Fn(&[u8]) -> bool) {
    const KEPT: usize = 100;
    let mut bytes = vec![0; 1 << 16];
    let mut seen = Vec::new();
    while let Ok(count) = from.read(&mut bytes)
        && count > 0
    {
        seen.drain(..seen.len().saturating_sub(KEPT));
        seen.extend_from_slice(&bytes[..count]);
        if !may_pass(&seen) || to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// Whose confirms do not come, and since when.
#[derive(Debug, Default)]
pub(crate) struct Silence {
    words: Words,
    /// Confirms that were kept back.
    pub(crate) kept: AtomicU32,
}

impl Silence {
    /// Messages with `words` in their body are not confirmed from here on; empty: all are, those that were kept back
    /// together with the next.
    pub(crate) fn set(&self, words: &str) {
        self.words.set(words);
    }
}

/// Messages of one connection by their delivery tags.
#[derive(Debug, Default)]
struct Tags {
    last: u64,
    open: BTreeSet<u64>,
    silent: BTreeSet<u64>,
}

/// Forwards to an AMQP `server`, except confirms that are kept back. Gives the address to connect to.
pub(crate) fn silencer(server: SocketAddr, silence: &Arc<Silence>) -> SocketAddr {
    let silence = silence.clone();
    stand_before(server, move |client, server| {
        let (from, to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        let tags = Arc::new(Mutex::new(Tags::default()));
        let (there, back) = ((silence.clone(), tags.clone()), silence.clone());
        thread::spawn(move || {
            frames(client, server, 8, |frame| publish(&there.0, &there.1, frame))
        });
        thread::spawn(move || frames(from, to, 0, |frame| confirm(&back, &tags, frame)));
    })
}

/// Hands frames on as `change` makes them, after a greeting of so many bytes.
fn frames(
    mut from: TcpStream,
    mut to: TcpStream,
    greeting: usize,
    mut change: impl FnMut(Vec<u8>) -> Vec<u8>,
) {
    let mut pass = || -> std::io::Result<()> {
        let mut hello = vec![0; greeting];
        from.read_exact(&mut hello)?;
        to.write_all(&hello)?;
        loop {
            // Kind, channel, length; the payload; an end.
            let mut frame = vec![0; 7];
            from.read_exact(&mut frame)?;
            let length = u32::from_be_bytes(frame[3..7].try_into().unwrap()) as usize;
            frame.resize(7 + length + 1, 0);
            from.read_exact(&mut frame[7..])?;
            to.write_all(&change(frame))?;
        }
    };
    let _ = pass();
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// Class and method of a frame that is one.
fn method(frame: &[u8]) -> Option<[u8; 4]> {
    (frame[0] == 1).then(|| frame[7..11].try_into().unwrap())
}

fn publish(silence: &Silence, tags: &Mutex<Tags>, frame: Vec<u8>) -> Vec<u8> {
    let mut tags = tags.lock().unwrap();
    if method(&frame) == Some([0, 60, 0, 40]) {
        tags.last += 1;
        let last = tags.last;
        tags.open.insert(last);
    } else if frame[0] == 3 && silence.words.are_in(&frame[7..]) {
        let last = tags.last;
        tags.silent.insert(last);
    }
    frame
}

fn confirm(silence: &Silence, tags: &Mutex<Tags>, frame: Vec<u8>) -> Vec<u8> {
    if method(&frame) != Some([0, 60, 0, 80]) {
        return frame;
    }
    let mut tags = tags.lock().unwrap();
    let tag = u64::from_be_bytes(frame[11..19].try_into().unwrap());
    let is_multiple = frame[19] & 1 == 1;
    let mut confirmed: Vec<u64> = match is_multiple {
        true => tags.open.range(..=tag).copied().collect(),
        false => vec![tag],
    };
    confirmed.iter().for_each(|tag| assert!(tags.open.remove(tag)));
    let before = confirmed.len();
    confirmed.retain(|tag| !tags.silent.contains(tag));
    silence.kept.fetch_add((before - confirmed.len()) as u32, Ordering::Relaxed);
    if silence.words.are_none() {
        confirmed.extend(std::mem::take(&mut tags.silent));
    }
    let one = |tag: u64| [&frame[..11], &tag.to_be_bytes(), &[0, 0xce]].concat();
    confirmed.into_iter().flat_map(one).collect()
}

/// A pooler that gives a session to a client for the time of one transaction. Gives the address to connect to.
pub(crate) fn pooler(server: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let idle = Arc::new(Mutex::new(Vec::new()));
    thread::spawn(move || {
        for client in listener.incoming() {
            let idle = Arc::clone(&idle);
            // A client that goes away ends its own thread.
            thread::spawn(move || client.and_then(|client| pool(client, server, &idle)));
        }
    });
    address
}

fn pool(
    mut client: TcpStream,
    server: SocketAddr,
    idle: &Mutex<Vec<TcpStream>>,
) -> std::io::Result<()> {
    let startup = with_length(&mut client, Vec::new())?;
    // Welcome, without asking the server; ready.
    client.write_all(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I")?;
    loop {
        let mut message = message(&mut client)?;
        let free = idle.lock().unwrap().pop();
        let mut session = match free {
            Some(session) => session,
            None => connect(server, &startup)?,
        };
        loop {
            session.write_all(&message)?;
            if message[0] == b'X' {
                return Ok(());
            }
            if matches!(message[0], b'Q' | b'S') && until_ready(&mut session, &mut client)? == b'I'
            {
                break;
            }
            message = self::message(&mut client)?;
        }
        idle.lock().unwrap().push(session);
    }
}

fn connect(server: SocketAddr, startup: &[u8]) -> std::io::Result<TcpStream> {
    let mut session = TcpStream::connect(server)?;
    session.write_all(startup)?;
    until_ready(&mut session, &mut std::io::sink())?;
    Ok(session)
}

/// Hands on what the server says until it is ready; the state of its transaction.
fn until_ready(session: &mut TcpStream, client: &mut impl Write) -> std::io::Result<u8> {
    loop {
        let message = message(session)?;
        client.write_all(&message)?;
        if message[0] == b'Z' {
            return Ok(message[5]);
        }
    }
}

/// A message of PostgreSQL's protocol: its kind, its length, the rest.
fn message(from: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut kind = vec![0];
    from.read_exact(&mut kind)?;
    with_length(from, kind)
}

fn with_length(from: &mut TcpStream, mut message: Vec<u8>) -> std::io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    message.extend(length);
    let start = message.len();
    message.resize(start + u32::from_be_bytes(length) as usize - 4, 0);
    from.read_exact(&mut message[start..])?;
    Ok(message)
}
