//! The attacks, each bounded in count and in time.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use amqp::{Encoder, FieldTable, Method, TableRef, basic, exchange, queue, tx};
use bytes::BytesMut;
use client::io::blocking::{Blocking, Parts, Stream};
use client::{Error, Options, Url};

/// Threads of one storm.
const THREADS: usize = 128;
/// How long any attack goes on.
const ATTACK_MAX: Duration = Duration::from_secs(60);
const FRAME_MAX: u32 = 131_072;
/// Connections of a crowd, if the node has the descriptors.
const CROWD: usize = 10_000;

/// One attack.
pub(super) struct Attack {
    pub(super) name: &'static str,
    pub(super) run: fn(&Stage) -> Said,
}

/// What came of it.
pub(super) struct Said {
    pub(super) words: String,
    /// Nothing happened that an honest user would have minded.
    pub(super) is_right: bool,
}

/// Whom, and how hard.
pub(super) struct Stage {
    pub(super) url: String,
    pub(super) share: f64,
    /// How many connections the node's descriptors allow, its own files left out.
    pub(super) connections_max: usize,
}

pub(super) const ATTACKS: &[Attack] = &[
    Attack { name: "wrong logins", run: wrong_logins },
    Attack { name: "right logins", run: right_logins },
    Attack { name: "silent sockets", run: silent_sockets },
    Attack { name: "unfinished messages", run: unfinished_messages },
    Attack { name: "open transactions", run: open_transactions },
    Attack { name: "big arguments", run: big_arguments },
    Attack { name: "one message each", run: one_message_each },
    Attack { name: "stalled readers", run: stalled_readers },
    Attack { name: "connection churn", run: connection_churn },
    Attack { name: "a crowd", run: a_crowd },
];

impl Stage {
    fn count(&self, whole: usize) -> usize {
        ((whole as f64 * self.share) as usize).max(1)
    }

    fn url(&self) -> Url {
        self.url.parse().expect("the siege made this URL")
    }

    fn wrong_url(&self, number: usize) -> Url {
        let text = self.url.replace("guest:guest", &format!("guest:wrong-{number}"));
        text.parse().expect("the siege made this URL")
    }

    fn open(&self) -> Result<Blocking, Error> {
        Blocking::open(&self.url(), &options())
    }

    fn connect(&self) -> std::io::Result<TcpStream> {
        let url = self.url();
        TcpStream::connect((url.host.as_str(), url.port))
    }
}

fn options() -> Options {
    let timeout = Duration::from_secs(30);
    Options { answer_wait: timeout, heartbeat: 0, ..Options::named("siege").without_retry() }
}

/// How a try ended, in few words, so that many can be counted.
fn kind(ended: &Result<(), Error>) -> String {
    match ended {
        Ok(()) => "served".to_owned(),
        Err(Error::ConnectionClosed { code, .. } | Error::ChannelClosed { code, .. }) => {
            format!("refused {code}")
        }
        Err(Error::Unreachable { .. }) => "unreachable".to_owned(),
        Err(Error::Lost { .. }) => "cut off".to_owned(),
        Err(Error::NoAnswer { .. }) => "no answer".to_owned(),
        Err(other) => format!("{other}"),
    }
}

/// Many threads do the same thing so many times; how each try ended is counted.
fn storm(count: usize, one: impl Fn(usize) -> Result<(), Error> + Sync) -> BTreeMap<String, usize> {
    let (next, ends) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let give_up_at = Instant::now() + ATTACK_MAX;
    std::thread::scope(|scope| {
        for _ in 0..THREADS.min(count) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count || Instant::now() > give_up_at {
                        break;
                    }
                    let ended = kind(&one(number));
                    *ends.lock().expect("nobody panics with it").entry(ended).or_default() += 1;
                }
            });
        }
    });
    ends.into_inner().expect("nobody panics with it")
}

fn told(ends: &BTreeMap<String, usize>) -> String {
    let words: Vec<String> = ends.iter().map(|(end, count)| format!("{end}: {count}")).collect();
    words.join(", ")
}

fn wrong_logins(stage: &Stage) -> Said {
    let ends = storm(stage.count(3000), |number| {
        Blocking::open(&stage.wrong_url(number), &options())?.close()
    });
    Said { words: told(&ends), is_right: !ends.contains_key("served") }
}

/// A right password is never called wrong, whatever the load.
fn right_logins(stage: &Stage) -> Said {
    let begin = Instant::now();
    let ends = storm(stage.count(3000), |_| stage.open()?.close());
    let words = format!("{} in {:.1} s", told(&ends), begin.elapsed().as_secs_f64());
    Said { words, is_right: ends.keys().all(|end| end == "served") }
}

/// As many connections as the node has descriptors for, each with a channel, and all of them stay. `--descriptors
/// 14000` makes 10,000 of them.
fn a_crowd(stage: &Stage) -> Said {
    let count = stage.count(CROWD.min(stage.connections_max));
    let here = Mutex::new(Vec::with_capacity(count));
    let begin = Instant::now();
    let ends = storm(count, |_| {
        let at = Instant::now();
        let parts = bare(stage)?;
        here.lock().expect("nobody panics with it").push((at.elapsed(), parts));
        Ok(())
    });
    let took = begin.elapsed();
    let mut here = here.into_inner().expect("nobody panics with it");
    here.sort_by_key(|(waited, _)| *waited);
    let waited_ms = |percent: usize| {
        let place = here.len().saturating_sub(1) * percent / 100;
        here.get(place).map_or(0.0, |(waited, _)| waited.as_secs_f64() * 1000.0)
    };
    let words = format!(
        "{} in {:.1} s, {:.0} a second, each in p50 {:.0} p99 {:.0} ms",
        told(&ends),
        took.as_secs_f64(),
        here.len() as f64 / took.as_secs_f64(),
        waited_ms(50),
        waited_ms(99)
    );
    Said { words, is_right: ends.keys().all(|end| end == "served") }
}

/// Sockets that say nothing must not lock out who has a password.
fn silent_sockets(stage: &Stage) -> Said {
    let silent: Vec<_> = (0..stage.count(1500)).map_while(|_| stage.connect().ok()).collect();
    let ends = storm(20, |_| stage.open()?.close());
    let words = format!("{} silent; logins beside them: {}", silent.len(), told(&ends));
    Said { words, is_right: ends.keys().all(|end| end == "served") }
}

/// A connection taken to the bare socket, with a channel 1.
fn bare(stage: &Stage) -> Result<Parts, Error> {
    let mut connection = stage.open()?;
    connection.open_channel()?;
    Ok(connection.into_parts())
}

/// Writes until the socket takes no more for a while. Gives how many bytes it took.
fn push(socket: &mut Stream, bytes: &[u8], timeout: Duration) -> usize {
    let _ = socket.set_write_timeout(Some(timeout));
    let mut sent = 0;
    while sent < bytes.len() {
        match socket.write(&bytes[sent..]) {
            Ok(0) => break,
            Ok(count) => sent += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => (),
            Err(_) => break,
        }
    }
    sent
}

/// Large bodies of which a piece is always missing.
fn unfinished_messages(stage: &Stage) -> Said {
    const BODY: usize = 15 << 20;
    let mut bytes = BytesMut::new();
    let mut encoder = Encoder::new(&mut bytes, FRAME_MAX);
    encoder.method(1, &publish("neighbour"));
    encoder.header(1, BODY as u64, &[0, 0]);
    encoder.body(1, &vec![b'x'; BODY - 1]);
    let mut held = Vec::new();
    let (mut sent, begin) = (0, Instant::now());
    for _ in 0..stage.count(100) {
        if begin.elapsed() > ATTACK_MAX {
            break;
        }
        if let Ok(mut parts) = bare(stage) {
            sent += push(&mut parts.socket, &bytes, Duration::from_millis(500));
            held.push(parts);
        }
    }
    Said { words: format!("{} connections, {} MB sent", held.len(), sent >> 20), is_right: true }
}

fn publish(queue: &str) -> Method<'_> {
    Method::BasicPublish(basic::Publish {
        exchange: "",
        routing_key: queue,
        mandatory: false,
        immediate: false,
    })
}

/// Transactions that are filled and never committed.
fn open_transactions(stage: &Stage) -> Said {
    let mut bytes = BytesMut::new();
    let mut encoder = Encoder::new(&mut bytes, FRAME_MAX);
    for _ in 0..64 {
        encoder.method(1, &publish("neighbour"));
        encoder.header(1, 256 << 10, &[0, 0]);
        encoder.body(1, &vec![b'x'; 256 << 10]);
    }
    let mut held = Vec::new();
    let (mut sent, begin) = (0, Instant::now());
    for _ in 0..stage.count(60) {
        if begin.elapsed() > ATTACK_MAX {
            break;
        }
        let opened = stage.open().and_then(|mut connection| {
            let channel = connection.open_channel()?;
            connection.call(channel, &Method::TxSelect(tx::Select))?;
            Ok(connection.into_parts())
        });
        if let Ok(mut parts) = opened {
            sent += push(&mut parts.socket, &bytes, Duration::from_millis(500));
            held.push(parts);
        }
    }
    Said { words: format!("{} transactions, {} MB sent", held.len(), sent >> 20), is_right: true }
}

/// Bindings with arguments of 60 KB, until the node refuses.
fn big_arguments(stage: &Stage) -> Said {
    let made = AtomicUsize::new(0);
    let ends = storm(16, |thread| {
        let mut connection = stage.open()?;
        let channel = connection.open_channel()?;
        let begin = Instant::now();
        declare(&mut connection, channel)?;
        for number in 0..stage.count(500) {
            if begin.elapsed() > ATTACK_MAX / 2 {
                break;
            }
            let key = format!("{thread}-{number}");
            let mut arguments = FieldTable::new();
            arguments.insert("x", "x".repeat(60_000).as_str());
            let arguments = arguments.to_bytes();
            let bind = queue::Bind {
                queue: "arguments",
                exchange: "arguments",
                routing_key: &key,
                no_wait: false,
                arguments: TableRef::validate(&arguments)?,
            };
            connection.call(channel, &Method::QueueBind(bind))?;
            made.fetch_add(1, Ordering::Relaxed);
        }
        connection.close()
    });
    if let Ok(mut connection) = stage.open()
        && let Ok(channel) = connection.open_channel()
    {
        let delete = exchange::Delete { exchange: "arguments", ..Default::default() };
        // The next attack finds a node without them; what is refused now shows in the memory that is kept.
        let _ = connection.call(channel, &Method::ExchangeDelete(delete));
    }
    let made = made.load(Ordering::Relaxed);
    Said { words: format!("{made} bindings; threads: {}", told(&ends)), is_right: true }
}

/// Messages of 4 MiB over a connection each: the memory alarm must hold them, too.
fn one_message_each(stage: &Stage) -> Said {
    let mut bytes = BytesMut::new();
    let mut encoder = Encoder::new(&mut bytes, FRAME_MAX);
    encoder.method(1, &publish("neighbour"));
    encoder.header(1, 4 << 20, &[0, 0]);
    encoder.body(1, &vec![b'x'; 4 << 20]);
    let sent = AtomicUsize::new(0);
    let ends = storm(stage.count(300), |_| {
        let mut parts = bare(stage)?;
        sent.fetch_add(
            push(&mut parts.socket, &bytes, Duration::from_millis(300)),
            Ordering::Relaxed,
        );
        Ok(())
    });
    let mb = sent.load(Ordering::Relaxed) >> 20;
    Said { words: format!("{mb} MB sent; {}", told(&ends)), is_right: true }
}

/// Consumers that take what they can get and read nothing.
fn stalled_readers(stage: &Stage) -> Said {
    let filled = stage.open().and_then(|mut connection| {
        let channel = connection.open_channel()?;
        let declare = queue::Declare { queue: "stalled", durable: true, ..Default::default() };
        connection.call(channel, &Method::QueueDeclare(declare))?;
        let mut parts = connection.into_parts();
        let mut bytes = BytesMut::new();
        let mut encoder = Encoder::new(&mut bytes, FRAME_MAX);
        for _ in 0..200 {
            encoder.method(1, &publish("stalled"));
            encoder.header(1, 256 << 10, &[0, 0]);
            encoder.body(1, &vec![b'x'; 256 << 10]);
        }
        Ok(push(&mut parts.socket, &bytes, Duration::from_secs(5)))
    });
    let mut held = Vec::new();
    for _ in 0..stage.count(50) {
        let Ok(mut parts) = bare(stage) else { continue };
        let mut bytes = BytesMut::new();
        let consume = basic::Consume { queue: "stalled", ..Default::default() };
        Encoder::new(&mut bytes, FRAME_MAX).method(1, &Method::BasicConsume(consume));
        push(&mut parts.socket, &bytes, Duration::from_secs(1));
        held.push(parts);
    }
    let end = Instant::now() + Duration::from_secs(5);
    while Instant::now() < end {
        std::thread::sleep(Duration::from_millis(100));
    }
    let mut got = 0;
    for parts in &mut held {
        let _ = parts.socket.set_read_timeout(Some(Duration::from_millis(1)));
        let mut some = [0; 4096];
        got += parts.socket.read(&mut some).unwrap_or(0);
    }
    let filled = filled.unwrap_or(0) >> 20;
    let purged = stage.open().and_then(|mut connection| {
        let channel = connection.open_channel()?;
        let delete = queue::Delete { queue: "stalled", ..Default::default() };
        connection.call(channel, &Method::QueueDelete(delete))
    });
    Said {
        words: format!("{filled} MB for {} readers, of whom {got} bytes were read", held.len()),
        is_right: purged.is_ok(),
    }
}

fn connection_churn(stage: &Stage) -> Said {
    let ends = storm(stage.count(3000), |number| match number % 3 {
        0 => stage.open()?.close(),
        1 => stage.open().map(drop),
        _ => {
            // Half a handshake, and gone.
            if let Ok(mut socket) = stage.connect() {
                let _ = socket.write_all(b"AMQP\x00\x00");
            }
            Ok(())
        }
    });
    Said { words: told(&ends), is_right: ends.keys().all(|end| end == "served") }
}

fn declare(connection: &mut Blocking, channel: u16) -> Result<(), Error> {
    let exchange = exchange::Declare {
        exchange: "arguments",
        kind: "direct",
        durable: true,
        ..Default::default()
    };
    connection.call(channel, &Method::ExchangeDeclare(exchange))?;
    let queue = queue::Declare { queue: "arguments", durable: true, ..Default::default() };
    connection.call(channel, &Method::QueueDeclare(queue)).map(drop)
}
