//! One consuming thread: reads large chunks, counts every delivery, acknowledges in batches.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use amqp::{Encoder, FieldTable, Method, TableRef, basic};
use bytes::BytesMut;
use hdrhistogram::Histogram;

use super::scan::Listener;
use super::stencil::STAMP_BYTES;
use super::tally::{Conductor, Counters, Latencies, Phase, now_ns};
use super::wire::{Notice, Wire, notice};

/// Brokers count milliseconds: what comes less than one before its time comes in time.
const EARLY_NS: u64 = 1_000_000;

/// What one consumer is to do.
pub(super) struct Task {
    pub(super) queues: Vec<String>,
    pub(super) arguments: FieldTable,
    /// Acknowledge every so many deliveries; 0 means that the server does not wait for any.
    pub(super) ack_every: u64,
    /// What every body must measure. None: any size is right.
    pub(super) body_bytes: Option<u64>,
    /// Times before this are of messages that an earlier run left behind.
    pub(super) run_start_ns: u64,
}

/// Consumes until told to stop; everything delivered is then acknowledged.
pub(super) fn run(
    task: &Task,
    mut wire: Wire,
    channel: u16,
    conductor: &Conductor,
    counters: Arc<Counters>,
) -> Result<Histogram<u64>, String> {
    let mut deliveries = Deliveries {
        counters,
        channel,
        frame_max: wire.frame_max,
        ack_every: task.ack_every,
        body_bytes: task.body_bytes,
        run_start_ns: task.run_start_ns,
        queue_count: task.queues.len(),
        consuming: 0,
        last_tag: 0,
        complete_tag: 0,
        acked_tag: 0,
        redelivered: 0,
        wrong_size: 0,
        early: 0,
        missing: 0,
        is_first_part: false,
        now_ns: 0,
        is_measuring: false,
        latencies: Latencies::new(),
        acks: BytesMut::new(),
    };
    let arguments = task.arguments.to_bytes();
    let arguments = TableRef::validate(&arguments).map_err(|error| error.to_string())?;
    wire.send(&consume(&task.queues, task.ack_every == 0, arguments, channel, wire.frame_max))?;
    while conductor.phase() < Phase::Ending && !conductor.has_failed() {
        deliveries.is_measuring = conductor.phase() == Phase::Measuring;
        if wire.read()? {
            deliveries.now_ns = now_ns();
            wire.scan(&mut deliveries)?;
            deliveries.publish_counts();
        } else {
            // Nothing more comes for now: what is left over from the last batch is acknowledged too.
            deliveries.ack_rest();
        }
        wire.send(&deliveries.acks)?;
        deliveries.acks.clear();
    }
    deliveries.ack_rest();
    wire.send(&deliveries.acks)?;
    wire.close()?;
    Ok(deliveries.latencies.into_histogram())
}

pub(super) fn consume(
    queues: &[String],
    no_ack: bool,
    arguments: TableRef<'_>,
    channel: u16,
    frame_max: u32,
) -> BytesMut {
    let mut bytes = BytesMut::new();
    for queue in queues {
        let consume = basic::Consume {
            queue,
            consumer_tag: "",
            no_local: false,
            no_ack,
            exclusive: false,
            no_wait: false,
            arguments,
        };
        Encoder::new(&mut bytes, frame_max).method(channel, &Method::BasicConsume(consume));
    }
    bytes
}

/// What the server says to a consumer.
struct Deliveries {
    counters: Arc<Counters>,
    channel: u16,
    frame_max: u32,
    ack_every: u64,
    body_bytes: Option<u64>,
    run_start_ns: u64,
    queue_count: usize,
    /// How many of the queues are being consumed.
    consuming: usize,
    /// Deliveries are counted by their tag: each is one more than the last.
    last_tag: u64,
    /// The last delivery whose body is there to its end.
    complete_tag: u64,
    acked_tag: u64,
    redelivered: u64,
    wrong_size: u64,
    early: u64,
    /// Bytes of the current body that are still to come.
    missing: u64,
    is_first_part: bool,
    /// When the read returned that is being scanned.
    now_ns: u64,
    is_measuring: bool,
    latencies: Latencies,
    acks: BytesMut,
}

impl Deliveries {
    fn publish_counts(&self) {
        let counters = &self.counters;
        if self.consuming == self.queue_count {
            counters.ready.store(true, Relaxed);
        }
        if counters.consumed.load(Relaxed) == self.complete_tag {
            return;
        }
        if counters.first_ns.load(Relaxed) == 0 {
            counters.first_ns.store(self.now_ns, Relaxed);
        }
        counters.last_ns.store(self.now_ns, Relaxed);
        counters.redelivered.store(self.redelivered, Relaxed);
        counters.wrong_size.store(self.wrong_size, Relaxed);
        counters.early.store(self.early, Relaxed);
        counters.consumed.store(self.complete_tag, Relaxed);
    }

    #[inline]
    fn complete(&mut self) {
        self.complete_tag = self.last_tag;
        if self.ack_every > 0 && self.complete_tag - self.acked_tag >= self.ack_every {
            self.ack();
        }
    }

    fn ack_rest(&mut self) {
        if self.ack_every > 0 && self.acked_tag < self.complete_tag {
            self.ack();
        }
    }

    fn ack(&mut self) {
        let delivery_tag = self.complete_tag;
        let multiple = delivery_tag - self.acked_tag > 1;
        let ack = Method::BasicAck(basic::Ack { delivery_tag, multiple });
        Encoder::new(&mut self.acks, self.frame_max).method(self.channel, &ack);
        self.acked_tag = delivery_tag;
    }

    #[cold]
    fn wrong_tag(&self, tag: u64) -> String {
        format!("delivery tag {tag} came after {}", self.last_tag)
    }
}

impl Listener for Deliveries {
    #[inline]
    fn delivered(&mut self, tag: u64, redelivered: bool) -> Result<(), String> {
        if tag != self.last_tag + 1 || self.missing > 0 {
            return Err(self.wrong_tag(tag));
        }
        self.last_tag = tag;
        self.redelivered += u64::from(redelivered);
        Ok(())
    }

    #[inline]
    fn content(&mut self, body_bytes: u64) -> Result<(), String> {
        self.wrong_size += u64::from(self.body_bytes.is_some_and(|right| right != body_bytes));
        self.missing = body_bytes;
        self.is_first_part = true;
        if body_bytes == 0 {
            self.complete();
        }
        Ok(())
    }

    #[inline]
    fn body(&mut self, part: &[u8]) -> Result<(), String> {
        let Some(missing) = self.missing.checked_sub(part.len() as u64) else {
            return Err("a body is longer than its header said".into());
        };
        self.missing = missing;
        if self.is_first_part
            && self.is_measuring
            && let Some(stamp) = part.first_chunk::<STAMP_BYTES>()
        {
            let sent_ns = u64::from_be_bytes(*stamp);
            if (self.run_start_ns..=self.now_ns + EARLY_NS).contains(&sent_ns) {
                self.latencies.record(sent_ns, self.now_ns);
            } else if sent_ns > self.now_ns {
                self.early += 1;
            }
        }
        self.is_first_part = false;
        if missing == 0 {
            self.complete();
        }
        Ok(())
    }

    fn method(&mut self, _: u16, payload: &[u8]) -> Result<(), String> {
        if Method::peek_ids(payload) == Some((60, 21)) {
            self.consuming += 1;
            return Ok(());
        }
        match notice(payload)? {
            Notice::Blocked | Notice::Unblocked | Notice::Other => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::bench::scan::scan;

    fn deliveries(ack_every: u64, body_bytes: u64) -> Deliveries {
        Deliveries {
            counters: Arc::default(),
            channel: 1,
            frame_max: 4096,
            ack_every,
            body_bytes: Some(body_bytes),
            run_start_ns: 0,
            queue_count: 1,
            consuming: 0,
            last_tag: 0,
            complete_tag: 0,
            acked_tag: 0,
            redelivered: 0,
            wrong_size: 0,
            early: 0,
            missing: 0,
            is_first_part: false,
            now_ns: 0,
            is_measuring: true,
            latencies: Latencies::new(),
            acks: BytesMut::new(),
        }
    }

    fn hear(
        deliveries: &mut Deliveries,
        tags: std::ops::RangeInclusive<u64>,
        body: &[u8],
    ) -> Result<(), String> {
        let mut bytes = BytesMut::new();
        for tag in tags {
            amqp::encode_deliver(
                &mut bytes,
                4096,
                1,
                b"\x01c",
                tag,
                false,
                b"\0\x01q",
                &[0, 0],
                body,
            );
        }
        assert_eq!(scan(&bytes, 4096, deliveries)?, bytes.len());
        Ok(())
    }

    #[test]
    fn one_acknowledgement_is_sent_for_every_so_many_deliveries() {
        let mut heard = deliveries(10, 8);
        hear(&mut heard, 1..=25, &[0; 8]).expect("in order");
        assert_eq!((heard.last_tag, heard.acked_tag), (25, 20));
        assert_eq!(heard.acks.len(), 2 * 21);
        heard.ack_rest();
        heard.ack_rest();
        assert_eq!((heard.acked_tag, heard.acks.len()), (25, 3 * 21));
    }

    #[test]
    fn without_acknowledgements_none_is_sent() {
        let mut heard = deliveries(0, 8);
        hear(&mut heard, 1..=25, &[0; 8]).expect("in order");
        heard.ack_rest();
        assert_eq!(heard.acks.len(), 0);
    }

    #[test]
    fn a_delivery_that_is_missing_or_comes_twice_ends_the_run() {
        let mut heard = deliveries(10, 8);
        hear(&mut heard, 1..=3, &[0; 8]).expect("in order");
        assert!(hear(&mut heard, 3..=3, &[0; 8]).is_err());
        assert!(hear(&mut heard, 5..=5, &[0; 8]).is_err());
        assert!(hear(&mut heard, 4..=4, &[0; 8]).is_ok());
    }

    #[test]
    fn a_body_of_another_size_is_counted() {
        let mut heard = deliveries(10, 8);
        hear(&mut heard, 1..=2, &[0; 9]).expect("it is AMQP all the same");
        hear(&mut heard, 3..=3, &[0; 8]).expect("in order");
        assert_eq!(heard.wrong_size, 2);
    }

    #[test]
    fn every_time_of_this_run_is_recorded_and_no_other() {
        let mut heard = deliveries(10, 8);
        heard.run_start_ns = 1000;
        heard.now_ns = 5000;
        hear(&mut heard, 1..=2, &2000u64.to_be_bytes()).expect("in order");
        hear(&mut heard, 3..=3, &999u64.to_be_bytes()).expect("in order");
        hear(&mut heard, 4..=4, &2_000_000u64.to_be_bytes()).expect("in order");
        assert_eq!(heard.early, 1, "it is due more than a millisecond later");
        let histogram = heard.latencies.into_histogram();
        assert_eq!((histogram.len(), histogram.max()), (2, 3));
    }
}
