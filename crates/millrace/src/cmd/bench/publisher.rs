//! One publishing thread: a connection, a window, and as few writes as the window allows.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use client::{UnknownSeq, Window};
use hdrhistogram::Histogram;

use super::scan::Listener;
use super::stencil::Stencil;
use super::tally::{Conductor, Counters, Latencies, Phase, now_ns};
use super::wire::{LOOK_AROUND, Notice, Wire, notice};

/// Messages that share a time stamp, without a rate: so few that they leave within microseconds.
const STAMP_EVERY: usize = 32;
/// Without confirms: messages between two looks at what the server has to say.
const LOOK_EVERY: u64 = 4096;
/// Writes that may take nothing, `LOOK_AROUND` each, after the end of the run.
const SEND_LOOKS_MAX: u32 = 200;
/// How long to wait at the end for confirms that are still out.
const CONFIRM_WAIT_NS: u64 = 30_000_000_000;

/// What one publisher is to do.
pub(super) struct Task {
    pub(super) stencil: Stencil,
    /// Unconfirmed messages at most; 0 means without confirms.
    pub(super) window: u32,
    /// Nanoseconds between two messages; 0 means as fast as the window allows.
    pub(super) interval_ns: f64,
    /// Stop after so many.
    pub(super) count: Option<u64>,
}

/// Publishes until told to stop, then waits for what is unconfirmed.
pub(super) fn run(
    mut task: Task,
    mut wire: Wire,
    conductor: &Conductor,
    counters: Arc<Counters>,
) -> Result<Histogram<u64>, String> {
    let mut answers = Answers {
        window: Window::new(task.window),
        sent_ns: vec![0; (task.window as usize).next_power_of_two()],
        now_ns: 0,
        is_measuring: false,
        latencies: Latencies::new(),
        counters,
        blocked: false,
    };
    answers.counters.ready.store(true, Relaxed);
    while conductor.phase() == Phase::Starting && !conductor.has_failed() {
        std::thread::park_timeout(LOOK_AROUND);
    }
    if task.interval_ns > 0.0 {
        // Waking up in time is the point here; the default slack of 50 µs would be in every latency.
        let slack = std::num::NonZero::new(1);
        rustix::thread::set_current_timer_slack(slack).map_err(|error| error.to_string())?;
    }
    let sent = if task.window == 0 {
        publish_unconfirmed(&mut task, &mut wire, conductor, &mut answers)?
    } else {
        publish_confirmed(&mut task, &mut wire, conductor, &mut answers)?
    };
    answers.counters.published.store(sent, Relaxed);
    wire.close()?;
    Ok(answers.latencies.into_histogram())
}

fn publish_confirmed(
    task: &mut Task,
    wire: &mut Wire,
    conductor: &Conductor,
    answers: &mut Answers,
) -> Result<u64, String> {
    let mut pace = Pace::new(task.interval_ns);
    // Refilling for every single confirm would cost a write each; a sixteenth of the window is not missed.
    let refill = u64::from(task.window / 16).max(1);
    let mut sent = 0;
    let mut give_up_ns = u64::MAX;
    loop {
        let phase = conductor.phase();
        answers.is_measuring = phase == Phase::Measuring;
        let left = task.count.map_or(u64::MAX, |count| count - sent);
        let is_over = phase >= Phase::Draining || left == 0 || conductor.has_failed();
        if is_over {
            if answers.window.is_empty() || conductor.has_failed() {
                return Ok(sent);
            }
            give_up_ns = give_up_ns.min(now_ns() + CONFIRM_WAIT_NS);
            if now_ns() > give_up_ns {
                return Ok(sent);
            }
        }
        let room = if is_over { 0 } else { answers.window.room() };
        let (due, wait_ns) = pace.due(room.min(left));
        // With a rate every message has its time; without, a batch is worth waiting for.
        if due > 0 && (due >= refill.min(left) || pace.has_rate()) {
            sent += send(task, wire, answers, &mut pace, conductor, due)?;
            answers.counters.published.store(sent, Relaxed);
            if answers.window.room() >= refill && !pace.has_rate() && task.count != Some(sent) {
                continue;
            }
        }
        if !pace.has_rate() || room == 0 || wire.wait(wait_ns)? {
            answers.receive(wire)?;
        }
    }
}

/// Sends `due` messages, or fewer if the ring ends; gives how many.
fn send(
    task: &mut Task,
    wire: &mut Wire,
    answers: &mut Answers,
    pace: &mut Pace,
    conductor: &Conductor,
    due: u64,
) -> Result<u64, String> {
    let count = (due as usize).min(task.stencil.left_in_ring());
    let first = answers.window.issue(count as u64).0;
    let mask = answers.sent_ns.len() as u64 - 1;
    let ring = &mut answers.sent_ns;
    let mut now = 0;
    let mut stamp = |index: usize| {
        if pace.has_rate() {
            now = pace.scheduled_ns(index);
        } else if index.is_multiple_of(STAMP_EVERY) {
            now = now_ns();
        }
        ring[((first + index as u64) & mask) as usize] = now;
        now
    };
    if !task.stencil.has_stamps() {
        for index in 0..count {
            stamp(index);
        }
    }
    let mut bytes = task.stencil.next(count, stamp);
    pace.sent(count as u64);
    let mut timeout = Timeout::default();
    while !bytes.is_empty() {
        match wire.send_some(bytes)? {
            // The server does not read: it may be blocked by its alarms, or by confirms we do not read.
            0 => answers.receive(wire)?,
            taken => bytes = &bytes[taken..],
        }
        timeout.check(conductor)?;
    }
    Ok(count as u64)
}

fn publish_unconfirmed(
    task: &mut Task,
    wire: &mut Wire,
    conductor: &Conductor,
    answers: &mut Answers,
) -> Result<u64, String> {
    let mut pace = Pace::new(task.interval_ns);
    let (mut sent, mut look_at) = (0, LOOK_EVERY);
    while conductor.phase() < Phase::Draining && !conductor.has_failed() {
        let left = task.count.map_or(u64::MAX, |count| count - sent);
        if left == 0 {
            break;
        }
        let (due, wait_ns) = pace.due(left);
        if due == 0 {
            if wire.wait(wait_ns)? {
                answers.receive(wire)?;
            }
            continue;
        }
        let count = (due as usize).min(task.stencil.left_in_ring());
        let mut now = 0;
        let mut bytes = task.stencil.next(count, |index| {
            if pace.has_rate() {
                now = pace.scheduled_ns(index);
            } else if index.is_multiple_of(STAMP_EVERY) {
                now = now_ns();
            }
            now
        });
        let mut timeout = Timeout::default();
        while !bytes.is_empty() {
            bytes = &bytes[wire.send_some(bytes)?..];
            timeout.check(conductor)?;
        }
        pace.sent(count as u64);
        sent += count as u64;
        answers.counters.published.store(sent, Relaxed);
        if sent >= look_at {
            look_at = sent + LOOK_EVERY;
            if wire.wait(0)? {
                answers.receive(wire)?;
            }
        }
    }
    Ok(sent)
}

/// A server that takes no bytes may be waited for, but not for ever once the run is over.
#[derive(Default)]
struct Timeout {
    looks: u32,
}

impl Timeout {
    #[inline]
    fn check(&mut self, conductor: &Conductor) -> Result<(), String> {
        if conductor.phase() >= Phase::Draining {
            self.looks += 1;
        }
        if self.looks > SEND_LOOKS_MAX || conductor.has_failed() {
            return Err("the server took no more bytes until the run was over".into());
        }
        Ok(())
    }
}

/// Which messages are due, by the schedule of an open loop.
struct Pace {
    interval_ns: f64,
    start_ns: u64,
    sent: u64,
}

impl Pace {
    fn new(interval_ns: f64) -> Self {
        Self { interval_ns, start_ns: now_ns(), sent: 0 }
    }

    fn has_rate(&self) -> bool {
        self.interval_ns > 0.0
    }

    /// How many of `room` messages may go now, and how long until the next, in nanoseconds.
    fn due(&self, room: u64) -> (u64, u64) {
        if !self.has_rate() {
            return (room, LOOK_AROUND.as_nanos() as u64);
        }
        let passed = now_ns().saturating_sub(self.start_ns) as f64;
        let scheduled = (passed / self.interval_ns) as u64 + 1;
        let due = scheduled.saturating_sub(self.sent).min(room);
        let next_ns = ((self.sent + due) as f64 * self.interval_ns - passed).max(0.0);
        (due, (next_ns as u64).min(LOOK_AROUND.as_nanos() as u64))
    }

    /// When message `index` of the batch that goes now was to be sent.
    fn scheduled_ns(&self, index: usize) -> u64 {
        self.start_ns + ((self.sent + index as u64) as f64 * self.interval_ns) as u64
    }

    fn sent(&mut self, count: u64) {
        self.sent += count;
    }
}

/// What the server says to a publisher.
struct Answers {
    window: Window,
    /// When each unconfirmed message was sent, by its number modulo the size.
    sent_ns: Vec<u64>,
    /// When the read returned that is being scanned.
    now_ns: u64,
    is_measuring: bool,
    latencies: Latencies,
    counters: Arc<Counters>,
    blocked: bool,
}

impl Answers {
    fn receive(&mut self, wire: &mut Wire) -> Result<(), String> {
        if wire.read()? {
            self.now_ns = now_ns();
            wire.scan(self)?;
        }
        Ok(())
    }
}

impl Listener for Answers {
    #[inline]
    fn confirmed(&mut self, tag: u64, multiple: bool, positive: bool) -> Result<(), String> {
        let (mut count, mask) = (0, self.sent_ns.len() as u64 - 1);
        let Self { window, sent_ns, now_ns, is_measuring, latencies, .. } = self;
        window
            .settle(tag, multiple, |run| {
                count += run.count();
                if *is_measuring && positive {
                    for seq in run.first.0..=run.last.0 {
                        latencies.record(sent_ns[(seq & mask) as usize], *now_ns);
                    }
                }
            })
            .map_err(|UnknownSeq(tag)| {
                format!("the server confirmed message {tag}, which is not outstanding")
            })?;
        let counter = if positive { &self.counters.confirmed } else { &self.counters.nacked };
        // The only writer is this thread: a load and a store cost less than an atomic addition.
        counter.store(counter.load(Relaxed) + count, Relaxed);
        self.counters.last_ns.store(self.now_ns, Relaxed);
        Ok(())
    }

    fn content(&mut self, _: u64) -> Result<(), String> {
        Ok(())
    }

    fn body(&mut self, _: &[u8]) -> Result<(), String> {
        Ok(())
    }

    fn method(&mut self, _: u16, payload: &[u8]) -> Result<(), String> {
        match notice(payload)? {
            Notice::Blocked => self.blocked = true,
            Notice::Unblocked => self.blocked = false,
            Notice::Other => (),
        }
        self.counters.is_blocked.store(self.blocked, Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_loop_owes_what_it_could_not_send_in_time() {
        let mut pace = Pace::new(1000.0);
        pace.start_ns = now_ns() - 10_000_500;
        let (due, wait_ns) = pace.due(u64::MAX);
        assert!((10_001..10_500).contains(&due), "{due}");
        assert!(wait_ns <= 1000, "{wait_ns}");
        let (due, wait_ns) = pace.due(4);
        assert_eq!((due, wait_ns), (4, 0));
        assert_eq!(pace.scheduled_ns(3), pace.start_ns + 3000);
        pace.sent(4);
        assert_eq!(pace.scheduled_ns(0), pace.start_ns + 4000);
    }

    #[test]
    fn without_a_rate_everything_that_has_room_is_due() {
        assert_eq!(Pace::new(0.0).due(7).0, 7);
    }
}
