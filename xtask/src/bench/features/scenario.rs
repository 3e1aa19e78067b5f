//! One run of `millrace bench` each: what it is asked, and what of its answer counts.

use std::fmt;
use std::process::{Child, Command, Stdio};

use crate::bench::generator::millrace;
use crate::brokers::Kind;
use crate::json::number;
use crate::process::output;

/// Where the broker is, and which process it is.
#[derive(Clone, Copy)]
pub(super) struct At {
    pub(super) port: u16,
    pub(super) pid: u32,
}

/// A kind of queue, and messages that use what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queues {
    Plain,
    Priority,
    Ttl,
    Expiration,
    Dedup,
}

impl Queues {
    pub(super) const ALL: [Self; 5] =
        [Self::Plain, Self::Priority, Self::Ttl, Self::Expiration, Self::Dedup];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Priority => "x-max-priority 10, random priorities",
            Self::Ttl => "x-message-ttl",
            Self::Expiration => "expiration of each message",
            Self::Dedup => "x-message-deduplication, message-ids",
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Priority => "priority",
            Self::Ttl => "ttl",
            Self::Expiration => "expiration",
            Self::Dedup => "dedup",
        }
    }

    pub(super) fn is_for(self, kind: Kind) -> bool {
        kind == Kind::Millrace || self != Self::Dedup
    }

    fn words(self) -> &'static [&'static str] {
        match self {
            Self::Plain => &[],
            Self::Priority => &["--priorities", "10"],
            Self::Ttl => &["--argument", "x-message-ttl=60000"],
            Self::Expiration => &["--expiration", "60000"],
            Self::Dedup => &["--argument", "x-message-deduplication=true", "--message-ids"],
        }
    }
}

/// What a load came to.
#[derive(Clone, Debug)]
pub(super) struct Figures {
    pub(super) confirmed_per_s: f64,
    pub(super) consumed_per_s: f64,
    pub(super) cpu_us: f64,
    pub(super) confirm_p99_ms: f64,
    pub(super) rss_bytes: f64,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { confirmed_per_s, consumed_per_s, cpu_us, .. } = self;
        write!(
            f,
            "{confirmed_per_s:.0} confirmed/s, {consumed_per_s:.0} consumed/s, {cpu_us:.2} us"
        )
    }
}

/// One publisher, one consumer, one queue of this kind.
pub(super) fn load(at: At, queues: Queues, bytes: usize, seconds: u32) -> Result<Figures, String> {
    let mut bench = bench(at);
    bench.args(["--prefetch", "1000", "--ack-every", "100"]);
    bench.args(["--size", &bytes.to_string(), "--duration", &format!("{seconds}s")]);
    bench.args(["--queue-prefix", &format!("features-{}", queues.word()), "--delete"]);
    let said = output(bench.args(queues.words()))?;
    Ok(Figures {
        confirmed_per_s: figure(&said, &["confirm_rate"])?,
        consumed_per_s: figure(&said, &["consume_rate"])?,
        cpu_us: figure(&said, &["server", "cpu_s_per_million"])?,
        confirm_p99_ms: figure(&said, &["confirm_us", "p99"])? / 1000.0,
        rss_bytes: figure(&said, &["server", "rss_max"])?,
    })
}

/// What the broker has to do besides waiting for delayed messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beside {
    Nothing,
    Load,
}

/// Messages per second of the load beside.
const BESIDE_RATE: &str = "20000";
/// The last delayed message is due then, and the first when all of them are there.
const DELAYS: &str = "12s..32s";
const BESIDE_SECONDS: &str = "60s";

impl Beside {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing beside",
            Self::Load => "20,000 messages/s beside",
        }
    }

    /// The load, until it is ended.
    fn start(self, port: u16) -> Result<Option<Ended>, String> {
        if self == Self::Nothing {
            return Ok(None);
        }
        let url = format!("amqp://guest:guest@127.0.0.1:{port}/%2F");
        let mut bench = Command::new(crate::brokers::Build::Release.millrace());
        bench.args(["bench", "--json", "--quiet", "--url", &url, "--rate", BESIDE_RATE]);
        bench.args(["--queue-prefix", "features-beside", "--duration", BESIDE_SECONDS]);
        bench.stdout(Stdio::null()).stderr(Stdio::null()).stdin(Stdio::null());
        bench.spawn().map(|child| Some(Ended(child))).map_err(|error| error.to_string())
    }
}

/// Ends the process when it is dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What became of delayed messages. Lateness: from when a message was due to its delivery.
#[derive(Clone, Debug)]
pub(super) struct Delays {
    pub(super) late_p50_ms: f64,
    pub(super) late_p99_ms: f64,
    pub(super) late_max_ms: f64,
    pub(super) early: f64,
    pub(super) rss_before: f64,
    pub(super) rss_max: f64,
    pub(super) published_per_s: f64,
}

impl fmt::Display for Delays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { late_p50_ms, late_p99_ms, late_max_ms, early, rss_max, .. } = self;
        let rss = rss_max / 1e6;
        write!(
            f,
            "late {late_p50_ms:.1} / {late_p99_ms:.1} / {late_max_ms:.1} ms, {early} early, {rss:.0} MB"
        )
    }
}

/// Messages that are all delayed at the same time, and then due at random moments.
pub(super) fn delays(at: At, messages: u64, beside: Beside) -> Result<Delays, String> {
    let _beside = beside.start(at.port)?;
    let mut bench = bench(at);
    bench.args(["--size", "128", "--count", &messages.to_string(), "--delay", DELAYS]);
    // A consumer that holds little would be measured, not the broker: 50,000 fall due each second.
    bench.args(["--prefetch", "20000", "--ack-every", "100"]);
    bench.args(["--queue-prefix", "features-delay", "--delete"]);
    let said = output(&mut bench)?;
    let late = |name| figure(&said, &["end_to_end_us", name]).map(|us| us / 1000.0);
    Ok(Delays {
        late_p50_ms: late("p50")?,
        late_p99_ms: late("p99")?,
        late_max_ms: late("max")?,
        early: figure(&said, &["early"])?,
        rss_before: figure(&said, &["server", "rss_start"])?,
        rss_max: figure(&said, &["server", "rss_max"])?,
        published_per_s: figure(&said, &["publish_rate"])?,
    })
}

/// Why a message is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Death {
    Expired,
    Rejected,
}

impl Death {
    pub(super) const ALL: [Self; 2] = [Self::Expired, Self::Rejected];

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Rejected => "rejected",
        }
    }
}

/// What became of dead letters.
#[derive(Clone, Debug)]
pub(super) struct Dead {
    pub(super) per_s: f64,
    pub(super) cpu_us: f64,
    pub(super) rss_max: f64,
}

impl fmt::Display for Dead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0} msg/s, {:.2} us, {:.0} MB", self.per_s, self.cpu_us, self.rss_max / 1e6)
    }
}

/// A queue full of messages that die, and a queue for their letters.
pub(super) fn dead_letters(at: At, messages: u64, death: Death) -> Result<Dead, String> {
    let mut bench = bench(at);
    bench.args(["--size", "128", "--count", &messages.to_string(), "--dead-letter", death.word()]);
    bench.args(["--queue-prefix", &format!("features-{}", death.word())]);
    let said = output(&mut bench)?;
    Ok(Dead {
        per_s: figure(&said, &["dead_letter_rate"])?,
        cpu_us: figure(&said, &["server", "cpu_s_per_million"])?,
        rss_max: figure(&said, &["server", "rss_max"])?,
    })
}

fn bench(at: At) -> Command {
    let mut bench = millrace(at.port, at.pid);
    bench.args(["--window", "1000"]);
    bench
}

fn figure(said: &str, path: &[&str]) -> Result<f64, String> {
    number(said, path).ok_or_else(|| format!("no {} in {said}", path.join(".")))
}
