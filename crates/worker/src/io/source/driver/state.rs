//! The driver's own state: what is free, what is due, and when to try again.

mod start;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::calls::{Calls, Event};
use super::{Batch, Pace, Queue, Renewal, Taken, Upkept, Verdict};
use crate::error::Error;
use crate::io::source::backoff::Backoff;
use crate::io::source::{News, Order};
use crate::job::{Job, Receipt};
use crate::limits::{CLOSE_MAX, POLL_END_MAX};
use crate::settlement::{Settled, Settlement};
use crate::source::key_hash;
use crate::source::ledger::{Ledger, Step, Work};

/// How often leases are looked at.
const EXPIRE_EVERY: Duration = Duration::from_millis(500);
/// Orders that are read before anything is done about them.
const ORDERS_MAX: usize = 1024;

/// Whether calls may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The queue is to be opened at this time.
    Shut {
        open_at: Instant,
    },
    Opening,
    Open,
}

/// A settler, which has one batch at a time.
#[derive(Debug)]
struct Settler<H> {
    number: u64,
    is_busy: bool,
    /// A batch that was not answered: sent again as it was.
    unanswered: Option<Batch<H>>,
}

/// How far the end has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Running,
    Draining,
    Closing { since: Instant },
}

/// See the parent.
///
/// ```text
///           time               opened               Drain                Close, or the worker is gone
///   Shut ─────────> Opening ──────────> Open        Running ──> Draining ──> Closing ──> ended
///    ^ ^               │ fails           │             └─────────────────────^
///    │ └───────────────┘                 │
///    └──────── a call fails ─────────────┘
/// ```
///
/// `Phase` and `Life` go on side by side: a driver that drains opens its queue again, too.
pub(super) struct Driver<Q: Queue> {
    queue: Arc<Q>,
    pace: Pace,
    news: mpsc::Sender<News>,
    calls: Calls<Q>,
    phase: Phase,
    life: Life,
    is_away: bool,
    /// A call has worked: the worker knows that the broker is there.
    has_begun: bool,
    backoff: Backoff,
    ledger: Ledger<Q::Handle>,
    room: usize,
    /// Fetchers that are free.
    fetchers: Vec<usize>,
    fetching: usize,
    settlers: Vec<Settler<Q::Handle>>,
    due: Vec<Work<Q::Handle>>,
    /// When the first of `due` came.
    due_since: Option<Instant>,
    /// What the broker refused for now, and when to try again.
    held_back: Vec<Work<Q::Handle>>,
    held_back_until: Instant,
    refusals: Backoff,
    to_renew: Vec<Receipt>,
    is_renewing: bool,
    upkeep_at: Instant,
    is_upkeeping: bool,
    expire_at: Instant,
    /// Unsettled jobs by fetcher, for synchronous ones.
    open_jobs: BTreeMap<Receipt, usize>,
    /// Whether the worker is gone.
    is_alone: bool,
}

impl<Q: Queue> Driver<Q> {
    pub(super) fn new(queue: Arc<Q>, pace: Pace, news: mpsc::Sender<News>) -> Self {
        let now = Instant::now();
        let settler = || Settler { number: 0, is_busy: false, unanswered: None };
        Self {
            calls: Calls::new(Arc::clone(&queue)),
            queue,
            pace,
            news,
            phase: Phase::Shut { open_at: now },
            life: Life::Running,
            is_away: false,
            has_begun: false,
            backoff: Backoff::new(),
            ledger: Ledger::default(),
            room: 0,
            fetchers: (0..pace.fetchers).rev().collect(),
            fetching: 0,
            settlers: (0..pace.settlers).map(|_| settler()).collect(),
            due: Vec::new(),
            due_since: None,
            held_back: Vec::new(),
            held_back_until: now,
            refusals: Backoff::new(),
            to_renew: Vec::new(),
            is_renewing: false,
            upkeep_at: now,
            is_upkeeping: false,
            expire_at: now + EXPIRE_EVERY,
            open_jobs: BTreeMap::new(),
            is_alone: false,
        }
    }

    pub(super) async fn run(
        mut self,
        mut orders: mpsc::UnboundedReceiver<Order>,
    ) -> Result<(), Error> {
        loop {
            let now = Instant::now();
            self.advance(now).await;
            if self.is_over(now) {
                break;
            }
            let wake = tokio::time::sleep_until(self.deadline(now).into());
            tokio::select! {
                order = orders.recv(), if !self.is_closing() => {
                    self.order(order, Instant::now()).await;
                    for _ in 0..ORDERS_MAX {
                        let Ok(order) = orders.try_recv() else { break };
                        self.order(Some(order), Instant::now()).await;
                    }
                }
                Some(event) = self.calls.next() => self.event(event, Instant::now()).await?,
                () = wake => {}
            }
        }
        let rest = self.ledger.clear();
        let rest = rest.into_iter().chain(self.unsettled()).collect();
        self.lost(rest).await;
        self.queue.close().await;
        Ok(())
    }

    /// Receipts whose settlements were not carried out.
    fn unsettled(&mut self) -> Vec<Receipt> {
        let unanswered = self.settlers.iter_mut().filter_map(|settler| settler.unanswered.take());
        let unanswered = unanswered.flat_map(|batch| batch.works).map(|entry| entry.work.receipt);
        let due = self.due.drain(..).chain(self.held_back.drain(..)).map(|work| work.receipt);
        due.chain(unanswered).collect()
    }

    fn is_closing(&self) -> bool {
        matches!(self.life, Life::Closing { .. })
    }

    /// Whether nothing is left to do, or there is no more time for it.
    fn is_over(&self, now: Instant) -> bool {
        let Life::Closing { since } = self.life else { return false };
        let is_settled = self.due.is_empty()
            && self.held_back.is_empty()
            && self.settlers.iter().all(|s| !s.is_busy && s.unanswered.is_none());
        let is_quiet = self.fetching == 0 && !self.is_upkeeping && !self.is_renewing;
        let waited = now.saturating_duration_since(since);
        let is_never_opened = self.phase != Phase::Open && self.ledger.count() == 0;
        (is_settled && (is_quiet || is_never_opened || waited >= POLL_END_MAX))
            || waited >= CLOSE_MAX
    }

    /// When something is to be done without being asked.
    fn deadline(&self, now: Instant) -> Instant {
        let mut at = self.expire_at;
        match self.phase {
            Phase::Shut { open_at } => at = at.min(open_at),
            Phase::Opening => {}
            Phase::Open => {
                if !self.is_upkeeping {
                    at = at.min(self.upkeep_at);
                }
                if !self.held_back.is_empty() {
                    at = at.min(self.held_back_until);
                }
                if let Some(since) = self.due_since
                    && self.settlers.iter().any(|settler| !settler.is_busy)
                {
                    at = at.min(since + self.pace.settle_after);
                }
            }
        }
        if let Life::Closing { since } = self.life {
            let steps = [since + POLL_END_MAX, since + CLOSE_MAX];
            at = steps.into_iter().filter(|step| *step > now).fold(at, Instant::min);
        }
        at
    }

    async fn order(&mut self, order: Option<Order>, now: Instant) {
        match order {
            Some(Order::Room { jobs }) => self.room += jobs,
            Some(Order::Settle(settled)) => {
                let mut lost = Vec::new();
                for settled in settled {
                    let receipt = settled.receipt;
                    match self.ledger.settle(settled, now) {
                        Step::Work(work) => self.make_due(work, now),
                        Step::Waits => {}
                        Step::Lost => lost.push(receipt),
                    }
                }
                self.lost(lost).await;
            }
            Some(Order::Renew(receipts)) => self.to_renew.extend(receipts),
            Some(Order::Drain) => {
                if self.life == Life::Running {
                    self.life = Life::Draining;
                }
            }
            Some(Order::Close) | None => self.life = Life::Closing { since: now },
        }
    }

    fn make_due(&mut self, work: Work<Q::Handle>, now: Instant) {
        self.due.push(work);
        self.due_since.get_or_insert(now);
    }

    async fn event(&mut self, event: Event<Q::Handle>, now: Instant) -> Result<(), Error> {
        match event {
            Event::Opened(Ok(())) => {
                self.phase = Phase::Open;
                self.upkeep_at = now;
                self.back().await;
            }
            Event::Opened(Err(error)) => {
                self.phase = Phase::Opening;
                self.away(error, now).await?;
            }
            Event::Fetched { fetcher, granted, result } => {
                self.fetching -= 1;
                self.fetchers.push(fetcher);
                match result {
                    Ok(taken) => {
                        self.backoff.reset();
                        self.room += granted.saturating_sub(taken.len());
                        self.took(taken, fetcher, now).await;
                    }
                    Err(error) => {
                        self.room += granted;
                        self.away(error, now).await?;
                    }
                }
            }
            Event::Settled { settler, batch, result } => {
                self.settlers[settler].is_busy = false;
                match result {
                    Ok(verdicts) => self.settled(batch, verdicts, now).await,
                    Err(error) => {
                        self.settlers[settler].unanswered = Some(batch);
                        self.away(error, now).await?;
                    }
                }
            }
            Event::Renewed { receipts, result } => {
                self.is_renewing = false;
                self.renewed(receipts, result, now).await?;
            }
            Event::Upkept(result) => {
                self.is_upkeeping = false;
                self.upkept(result, now).await?;
            }
        }
        Ok(())
    }

    async fn upkept(&mut self, result: Result<Upkept, Error>, now: Instant) -> Result<(), Error> {
        let Upkept { is_all_lost, next } = match result {
            Ok(upkept) => upkept,
            Err(error) => return self.away(error, now).await,
        };
        self.upkeep_at = now + next;
        if is_all_lost {
            let all = self.ledger.clear();
            self.lost(all).await;
        }
        Ok(())
    }

    async fn took(&mut self, taken: Vec<Taken<Q::Handle>>, fetcher: usize, now: Instant) {
        let mut jobs = Vec::with_capacity(taken.len());
        for Taken { handle, lease_until, envelope } in taken {
            let receipt = self.ledger.take(handle, lease_until, fetcher);
            if self.life != Life::Running {
                // It came after the order to take nothing more: nobody else hears of it.
                let settled =
                    Settled { receipt, settlement: Settlement::Return, publishes: Vec::new() };
                if let Step::Work(work) = self.ledger.settle(settled, now) {
                    self.make_due(work, now);
                }
                continue;
            }
            if self.pace.is_synchronous {
                self.open_jobs.insert(receipt, fetcher);
            }
            jobs.push(Job {
                receipt,
                message: envelope.message,
                key: envelope.key.as_deref().map(key_hash),
                group: None,
                lease_until,
                published_ms: envelope.published_ms,
            });
        }
        if !jobs.is_empty() {
            self.say(News::Took(jobs)).await;
        }
    }

    async fn settled(&mut self, batch: Batch<Q::Handle>, verdicts: Vec<Verdict>, now: Instant) {
        assert_eq!(batch.works.len(), verdicts.len(), "every place of a batch has a verdict");
        let (mut settled, mut lost) = (Vec::with_capacity(verdicts.len()), Vec::new());
        let mut refused = None;
        for (entry, verdict) in batch.works.into_iter().zip(verdicts) {
            match verdict {
                Verdict::Settled => settled.push(entry.work.receipt),
                Verdict::Lost => lost.push(entry.work.receipt),
                Verdict::Again { .. } if entry.is_over => lost.push(entry.work.receipt),
                Verdict::Again { why } => {
                    refused = Some(why);
                    self.held_back.push(entry.work);
                }
            }
        }
        match refused {
            Some(why) => {
                self.held_back_until = now + self.refusals.next_delay();
                let count = self.held_back.len();
                let source = self.queue.name();
                tracing::warn!(source, count, why, "settlements were refused; trying again");
            }
            None if !settled.is_empty() => self.refusals.reset(),
            None => {}
        }
        for receipt in &settled {
            self.open_jobs.remove(receipt);
        }
        self.backoff.reset();
        if !settled.is_empty() {
            self.say(News::Settled(settled)).await;
        }
        self.lost(lost).await;
    }

    async fn renewed(
        &mut self,
        receipts: Vec<Receipt>,
        result: Result<Vec<Renewal<Q::Handle>>, Error>,
        now: Instant,
    ) -> Result<(), Error> {
        let (renewals, error) = match result {
            Ok(renewals) => (renewals, None),
            Err(error) => {
                let unknown = |receipt| Renewal::Unknown { receipt };
                (receipts.into_iter().map(unknown).collect(), Some(error))
            }
        };
        let (mut longer, mut lost) = (Vec::new(), Vec::new());
        for renewal in renewals {
            let work = match renewal {
                Renewal::Longer { receipt, handle, until } => {
                    longer.push((receipt, until));
                    self.ledger.renewed(receipt, handle, until)
                }
                Renewal::Unknown { receipt } => self.ledger.not_renewed(receipt),
                Renewal::Lost { receipt } => {
                    if self.ledger.lose(receipt) {
                        lost.push(receipt);
                    }
                    None
                }
            };
            if let Some(work) = work {
                self.make_due(work, now);
            }
        }
        if !longer.is_empty() {
            self.say(News::Renewed(longer)).await;
        }
        self.lost(lost).await;
        match error {
            Some(error) => self.away(error, now).await,
            None => Ok(()),
        }
    }

    /// A call failed: nothing is asked for a while, unless no waiting helps.
    async fn away(&mut self, error: Error, now: Instant) -> Result<(), Error> {
        if !error.is_temporary() {
            return Err(error);
        }
        if matches!(self.phase, Phase::Shut { .. }) {
            // Other calls failed for the same reason.
            return Ok(());
        }
        self.phase = Phase::Shut { open_at: now + self.backoff.next_delay() };
        if !self.is_away {
            self.is_away = true;
            self.say(News::Away { why: error.to_string() }).await;
        }
        Ok(())
    }

    async fn back(&mut self) {
        if self.is_away || !self.has_begun {
            (self.is_away, self.has_begun) = (false, true);
            self.say(News::Back).await;
        }
    }

    async fn lost(&mut self, receipts: Vec<Receipt>) {
        for receipt in &receipts {
            self.open_jobs.remove(receipt);
        }
        if !receipts.is_empty() {
            self.say(News::Lost(receipts)).await;
        }
    }

    async fn say(&mut self, news: News) {
        if self.news.send(news).await.is_err() && !self.is_alone {
            self.is_alone = true;
            self.life = Life::Closing { since: Instant::now() };
        }
    }
}
